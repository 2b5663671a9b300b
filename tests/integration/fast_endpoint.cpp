// An endpoint of Fast DDS, another vendor's, for tests of the bridge: its vendor tells no type, and this one has no key.
//
//     fast_endpoint DOMAIN write TOPIC   writes (0, "fast"), (1, "fast"), … every 20 ms until it is ended
//     fast_endpoint DOMAIN read TOPIC    prints a line "NUMBER TEXT" for each sample

#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <thread>

#include <fastcdr/Cdr.h>
#include <fastcdr/FastBuffer.h>
#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <fastdds/dds/topic/TypeSupport.hpp>

using namespace eprosima::fastdds::dds;
using eprosima::fastrtps::rtps::InstanceHandle_t;
using eprosima::fastrtps::rtps::SerializedPayload_t;

struct Reading {
  uint32_t number = 0;
  std::string text;
};

class ReadingType : public TopicDataType {
 public:
  ReadingType() {
    setName("Reading");
    m_typeSize = 1024;
    m_isGetKeyDefined = false;
  }

  bool serialize(void* data, SerializedPayload_t* payload) override {
    auto* reading = static_cast<Reading*>(data);
    eprosima::fastcdr::FastBuffer buffer(reinterpret_cast<char*>(payload->data), payload->max_size);
    eprosima::fastcdr::Cdr cdr(buffer, eprosima::fastcdr::Cdr::DEFAULT_ENDIAN, eprosima::fastcdr::Cdr::DDS_CDR);
    payload->encapsulation = cdr.endianness() == eprosima::fastcdr::Cdr::BIG_ENDIANNESS ? CDR_BE : CDR_LE;
    cdr.serialize_encapsulation();
    cdr << reading->number << reading->text;
    payload->length = static_cast<uint32_t>(cdr.getSerializedDataLength());
    return true;
  }

  bool deserialize(SerializedPayload_t* payload, void* data) override {
    auto* reading = static_cast<Reading*>(data);
    eprosima::fastcdr::FastBuffer buffer(reinterpret_cast<char*>(payload->data), payload->length);
    eprosima::fastcdr::Cdr cdr(buffer, eprosima::fastcdr::Cdr::DEFAULT_ENDIAN, eprosima::fastcdr::Cdr::DDS_CDR);
    cdr.read_encapsulation();
    cdr >> reading->number >> reading->text;
    return true;
  }

  std::function<uint32_t()> getSerializedSizeProvider(void*) override {
    return [] { return 1024u; };
  }

  void* createData() override { return new Reading(); }
  void deleteData(void* data) override { delete static_cast<Reading*>(data); }
  bool getKey(void*, InstanceHandle_t*, bool) override { return false; }
};

int main(int count, char** arguments) {
  if (count != 4) return 2;
  auto pause = std::chrono::milliseconds(20);
  auto* participant = DomainParticipantFactory::get_instance()->create_participant(
      std::stoi(arguments[1]), PARTICIPANT_QOS_DEFAULT);
  TypeSupport type(new ReadingType());
  type.register_type(participant);
  auto* topic = participant->create_topic(arguments[3], "Reading", TOPIC_QOS_DEFAULT);
  if (std::string(arguments[2]) == "write") {
    DataWriterQos qos = DATAWRITER_QOS_DEFAULT;
    qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
    auto* writer = participant->create_publisher(PUBLISHER_QOS_DEFAULT)->create_datawriter(topic, qos);
    Reading reading;
    reading.text = "fast";
    for (;; reading.number++) {
      writer->write(&reading);
      std::this_thread::sleep_for(pause);
    }
  }
  DataReaderQos qos = DATAREADER_QOS_DEFAULT;
  qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
  qos.history().kind = KEEP_ALL_HISTORY_QOS;
  auto* reader = participant->create_subscriber(SUBSCRIBER_QOS_DEFAULT)->create_datareader(topic, qos);
  for (;;) {
    Reading reading;
    SampleInfo info;
    while (reader->take_next_sample(&reading, &info) == ReturnCode_t::RETCODE_OK)
      if (info.valid_data) std::cout << reading.number << " " << reading.text << std::endl;
    std::this_thread::sleep_for(pause);
  }
}
