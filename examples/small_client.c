/* A whole subscriber of a Tocsin network in C99, on POSIX sockets: MQTT 5 with failover and queries.
 *
 *     cc -std=c99 -o small_client small_client.c
 *     ./small_client 127.0.0.1:1883 'Location/Room = "410"'
 *
 * It prints the messages of every stream that satisfies the query, as they come. It tells the broker that its home is
 * the first server; the broker answers with its backups, and names others when the plan changes. When the broker is
 * lost the client goes on at the local backup, then at the remote one, with its session: nothing that was acknowledged
 * is lost. It follows redirects, also the one home. It uses no memory but what is declared here.
 */
#define _POSIX_C_SOURCE 200809L
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { CONNECT = 1, CONNACK, PUBLISH, PUBACK, SUBSCRIBE = 8, SUBACK, PINGREQ = 12, PINGRESP, DISCONNECT };
enum { SUBSCRIPTION_ID = 11, SESSION_EXPIRY = 17, SERVER_REFERENCE = 28, USER_PROPERTY = 38 };
enum { USE_ANOTHER_SERVER = 0x9C, SERVER_MOVED = 0x9D };
enum { KEEP_ALIVE_S = 10, HURRY_MS = 3000, DIAL_MS = 10000, REDIRECTS_MAX = 3, EXPIRY_S = 3600 };
enum { SERVERS_MAX = 8, NAME_MAX_BYTES = 304, QUERY_MAX_BYTES = 1300, PACKET_MAX_BYTES = 65536 };
enum { BROKEN = -1, QUIET = -2 };

/* ── base: packets of MQTT 5 ── */
typedef struct {
    const unsigned char *at, *end;
} reader;

static int wire = -1;
static unsigned char packet[PACKET_MAX_BYTES];

static unsigned integer(reader *r, int size) {
    unsigned value = 0;
    for (; size; size--)
        value = value << 8 | (r->at < r->end ? *r->at++ : 0u);
    return value;
}

static unsigned number(reader *r) {
    unsigned value = 0, byte, shift = 0;
    do {
        byte = integer(r, 1);
        value |= (byte & 127) << shift;
        shift += 7;
    } while (byte > 127 && shift < 28);
    return value;
}

static reader part(reader *r, unsigned size) {
    unsigned left = (unsigned)(r->end - r->at);
    reader found = {r->at, r->at + (size < left ? size : left)};
    r->at = found.end;
    return found;
}

static reader text(reader *r) {
    unsigned size = integer(r, 2);
    return part(r, size);
}

static int equals(reader r, const char *word) {
    return (size_t)(r.end - r.at) == strlen(word) && !memcmp(r.at, word, strlen(word));
}

static void keep(char *to, reader from) { /* a name or address of a bounded length, or none */
    size_t size = (size_t)(from.end - from.at);
    if (size >= NAME_MAX_BYTES)
        size = 0;
    memcpy(to, from.at, size);
    to[size] = 0;
}

static unsigned char *put(unsigned char *to, unsigned value, int size) {
    for (int i = size - 1; i >= 0; i--, value >>= 8)
        to[i] = (unsigned char)value;
    return to + size;
}

static unsigned char *put_text(unsigned char *to, const char *word) {
    to = put(to, (unsigned)strlen(word), 2);
    memcpy(to, word, strlen(word));
    return to + strlen(word);
}

static unsigned char *put_pair(unsigned char *to, const char *name, const char *value) {
    *to++ = USER_PROPERTY;
    return put_text(put_text(to, name), value);
}

static int send_packet(int kind, int flags, const unsigned char *body, size_t size) {
    unsigned char frame[4096 + 5], *at = frame;
    size_t left = size;
    if (size > 4096)
        return BROKEN;
    *at++ = (unsigned char)(kind << 4 | flags);
    do {
        *at++ = (unsigned char)((left & 127) | (left > 127 ? 128 : 0));
    } while (left >>= 7);
    memcpy(at, body, size);
    size += (size_t)(at - frame);
    return send(wire, frame, size, MSG_NOSIGNAL) == (ssize_t)size ? 0 : BROKEN;
}

static int read_bytes(unsigned char *to, size_t size, int wait_ms) {
    for (size_t have = 0; have < size;) {
        struct pollfd ready = {wire, POLLIN, 0};
        if (poll(&ready, 1, wait_ms) < 1)
            return have ? BROKEN : QUIET;
        ssize_t count = recv(wire, to + have, size - have, 0);
        if (count < 1)
            return BROKEN;
        have += (size_t)count;
        wait_ms = DIAL_MS;
    }
    return 0;
}

/* The first byte of the next packet, with its body in *r; or BROKEN, or QUIET if none begins in time. */
static int receive(reader *r, int wait_ms) {
    unsigned char first, byte = 128;
    unsigned size = 0;
    int failed = read_bytes(&first, 1, wait_ms);
    for (int shift = 0; !failed && byte > 127 && shift < 28; shift += 7) {
        failed = read_bytes(&byte, 1, DIAL_MS);
        size |= (unsigned)(byte & 127) << shift;
    }
    if (!failed && size > sizeof packet)
        failed = BROKEN;
    if (!failed && size)
        failed = read_bytes(packet, size, DIAL_MS);
    r->at = packet;
    r->end = packet + size;
    return failed ? failed : first;
}

/* ── failover: where to go, and back home ── */
static char servers[SERVERS_MAX][NAME_MAX_BYTES]; /* the first, then those that the last broker told us */
static char home[NAME_MAX_BYTES], client_id[64], there[NAME_MAX_BYTES];
static int told = 1;
static time_t heard;

static int dial(const char *address) {
    char host[NAME_MAX_BYTES], *port;
    struct addrinfo hints = {0}, *found;
    struct timeval hurry = {HURRY_MS / 1000, 0}; /* Linux bounds connect() by it too */
    snprintf(host, sizeof host, "%s", address[0] == '[' ? address + 1 : address);
    if (!(port = strrchr(host, ':')))
        return BROKEN;
    *port++ = 0;
    host[strcspn(host, "]")] = 0;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host, port, &hints, &found))
        return BROKEN;
    if (wire >= 0)
        close(wire);
    wire = socket(found->ai_family, SOCK_STREAM, 0);
    setsockopt(wire, SOL_SOCKET, SO_SNDTIMEO, &hurry, sizeof hurry);
    int failed = wire < 0 || connect(wire, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return failed ? BROKEN : 0;
}

/* What a broker says of itself and others; ``there`` is where it sends us. */
static void read_properties(reader *r, int at_home) {
    unsigned size = r->at < r->end ? number(r) : 0;
    reader all = part(r, size);
    there[0] = 0;
    while (all.at < all.end) {
        unsigned kind = integer(&all, 1);
        if (kind == USER_PROPERTY) {
            reader name = text(&all), value = text(&all);
            if (equals(name, "server") && told < SERVERS_MAX)
                keep(servers[told++], value);
            if (equals(name, "broker") && at_home)
                keep(home, value);
        } else if (kind == SERVER_REFERENCE)
            keep(there, text(&all));
        else if (strchr("\3\10\11\22\25\26\32\37", (int)kind))
            text(&all);
        else if (kind == SUBSCRIPTION_ID)
            number(&all);
        else
            part(&all, strchr("\1\27\31\44\45\50\51\52", (int)kind) ? 1 : strchr("\23\41\42\43", (int)kind) ? 2 : 4);
    }
}

static int greet(const char *address, int redirects) {
    unsigned char body[1024], said[512], *at = body, *end = put_pair(put_pair(said, "home.v", "1"), "home", home);
    reader r;
    *end++ = SESSION_EXPIRY;
    end = put(end, EXPIRY_S, 4);
    at = put(put(put(put_text(at, "MQTT"), 5, 1), 0, 1), KEEP_ALIVE_S, 2);
    if (end - said > 127)
        *at++ = (unsigned char)(((end - said) & 127) | 128);
    *at++ = (unsigned char)(end - said > 127 ? (end - said) >> 7 : end - said);
    memcpy(at, said, (size_t)(end - said));
    at = put_text(at + (end - said), client_id);
    if (dial(address) || send_packet(CONNECT, 0, body, (size_t)(at - body)) || receive(&r, DIAL_MS) >> 4 != CONNACK)
        return BROKEN;
    int present = (int)integer(&r, 1), code = (int)integer(&r, 1), before = told;
    told = code ? told : 1;
    read_properties(&r, address == servers[0]);
    if ((code == USE_ANOTHER_SERVER || code == SERVER_MOVED) && there[0] && redirects) {
        char next[NAME_MAX_BYTES];
        told = before;
        memcpy(next, there, sizeof next);
        return greet(next, redirects - 1);
    }
    heard = time(NULL);
    return code ? BROKEN : present;
}

/* ── subscriber: queries ── */
static int subscribe(const char *query) {
    unsigned char body[4096], *at = put(put(body, 1, 2), 0, 1), *filter = at;
    at = put_text(at, "$query/");
    for (; *query; query++) {
        if (strchr("%+#", *query))
            at += sprintf((char *)at, "%%%02X", (unsigned)*query);
        else
            *at++ = (unsigned char)*query;
    }
    put(filter, (unsigned)(at - filter - 2), 2);
    *at++ = 1; /* at QoS 1 */
    return send_packet(SUBSCRIBE, 2, body, (size_t)(at - body));
}

static int on_publish(int flags, reader *r) {
    unsigned char id[2];
    reader topic = text(r);
    unsigned packet_id = flags & 6 ? integer(r, 2) : 0;
    unsigned size = number(r);
    part(r, size); /* its properties */
    if (equals(topic, "$home/servers")) {
        for (told = 1; told < SERVERS_MAX && r->at < r->end; told++) {
            const unsigned char *blank = memchr(r->at, ' ', (size_t)(r->end - r->at));
            reader next = {r->at, blank ? blank : r->end};
            keep(servers[told], next);
            r->at = blank ? blank + 1 : r->end;
        }
        return 0;
    }
    printf("%.*s %.*s\n", (int)(topic.end - topic.at), topic.at, (int)(r->end - r->at), r->at);
    if (fflush(stdout))
        exit(1);
    put(id, packet_id, 2);
    return packet_id ? send_packet(PUBACK, 0, id, 2) : 0; /* once it was dealt with */
}

/* ── program ── */
/* Until the connection is of no use: where to go then, or NULL: to the next. */
static const char *listen_on(int present, const char *query) {
    reader r;
    if (!present && subscribe(query))
        return NULL;
    for (;;) {
        int first = receive(&r, KEEP_ALIVE_S * 500);
        if (first == BROKEN || (first == QUIET && time(NULL) - heard > KEEP_ALIVE_S))
            return NULL;
        if (first == QUIET) {
            if (send_packet(PINGREQ, 0, packet, 0))
                return NULL;
            continue;
        }
        heard = time(NULL);
        if (first >> 4 == PUBLISH && on_publish(first & 15, &r))
            return NULL;
        if (first >> 4 == SUBACK && r.end > r.at) { /* it ends with the answer to the one filter */
            fputs(r.end[-1] > 2 ? "the query is refused\n" : "ready\n", stderr);
            if (r.end[-1] > 2)
                exit(1);
        }
        if (first >> 4 == DISCONNECT) {
            int before = told;
            integer(&r, 1);
            read_properties(&r, 0);
            told = before;
            return there[0] ? there : NULL;
        }
    }
}

int main(int count, char **words) {
    int turn = 0, present;
    const char *next = NULL;
    if (count != 3 || strlen(words[1]) >= NAME_MAX_BYTES || strlen(words[2]) > QUERY_MAX_BYTES) {
        fprintf(stderr, "usage: %s HOST:PORT QUERY (at most %d bytes)\n", words[0], QUERY_MAX_BYTES);
        return 2;
    }
    snprintf(servers[0], sizeof servers[0], "%s", words[1]);
    snprintf(home, sizeof home, "%s", words[1]);
    snprintf(client_id, sizeof client_id, "small-c-%ld", (long)getpid());
    for (long wait_ms = 100;;) {
        char place[NAME_MAX_BYTES];
        memcpy(place, next ? next : servers[turn], sizeof place);
        present = greet(next || turn ? place : servers[0], REDIRECTS_MAX);
        if (present >= 0) {
            wait_ms = 100;
            next = listen_on(present, words[2]);
            int silent = time(NULL) - heard > KEEP_ALIVE_S; /* frozen, perhaps: it is not where we begin again */
            turn = !next && silent && told > 1;
            continue;
        }
        next = NULL;
        if (++turn >= told) {
            struct timespec pause = {wait_ms / 1000, wait_ms % 1000 * 1000000};
            nanosleep(&pause, NULL);
            wait_ms = wait_ms > 5000 ? 10000 : wait_ms * 2;
            turn = 0;
        }
    }
}
