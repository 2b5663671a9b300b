// One client, MQTT.js: what it publishes comes back to it whole and in order. Arguments: URL, protocol level, QoS, client id.
// Prints one line of JSON, and exits with 1 if it took too long.
const mqtt = require("mqtt");

const [url, level, qosText, clientId] = process.argv.slice(2);
const qos = Number(qosText);
const IN_FLIGHT = Number(process.env.IN_FLIGHT || 50);
const MORE = Number(process.env.MORE || 0);
const payloads = Array.from({ length: 200 }, (_, number) => Buffer.from(`message ${number}`));
for (let number = 0; number < MORE; number++) payloads.push(Buffer.from(`more ${number}`));
payloads.push(Buffer.alloc(300000, "large "), Buffer.alloc(0), Buffer.from("last"));

const client = mqtt.connect(url, {
  clientId,
  protocolVersion: Number(level),
  reconnectPeriod: 0,
  connectTimeout: 10000,
});
const heard = [];

setTimeout(() => {
  console.error(`${heard.length} of ${payloads.length} messages came back in time`);
  process.exit(1);
}, 30000).unref();

client.on("error", (error) => {
  console.error(String(error));
  process.exit(1);
});
client.on("connect", async () => {
  await client.subscribeAsync(`js/${clientId}/#`, { qos });
  // MQTT.js does not keep to the broker's Receive Maximum by itself.
  for (let start = 0; start < payloads.length; start += IN_FLIGHT) {
    const some = payloads.slice(start, start + IN_FLIGHT);
    await Promise.all(
      some.map((payload, offset) => client.publishAsync(`js/${clientId}/${start + offset}`, payload, { qos })),
    );
  }
});
client.on("message", (topic, payload, packet) => {
  heard.push({ topic, payload, qos: packet.qos });
  if (heard.length < payloads.length) return;
  const right = heard.every(
    (message, number) =>
      message.topic === `js/${clientId}/${number}` &&
      message.payload.equals(payloads[number]) &&
      message.qos === qos,
  );
  client.end(false, () => console.log(JSON.stringify({ heard: heard.length, right })));
});
