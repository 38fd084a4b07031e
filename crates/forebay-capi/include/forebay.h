/* forebay.h: a queue under an AQM law, for programs that have packets and a clock of their own.
 *
 * Time: the caller supplies all times, in nanoseconds below 2^63 from any start (CLOCK_REALTIME and
 * CLOCK_MONOTONIC are fine). The first call that has a time starts the law's clock. Time never goes back:
 * a time that is earlier than the latest one counts as the latest one.
 *
 * Packets: a packet is a handle, a size and a few facts; its bytes stay with the caller. Every handle that
 * goes in comes out exactly once: by forebay_dequeue, or by forebay_next_lost.
 *
 * Threads: a queue belongs to one thread at a time, and may move to another thread. Different queues
 * share nothing. No function blocks, reads a clock, calls back, or keeps a pointer that it was given.
 * The work of a call is bounded, also after a gap of years.
 *
 * Errors: texts are UTF-8. A function that can fail returns FOREBAY_FAILED, or NULL. If a number is out of
 * range, a function returns FOREBAY_REFUSED: nothing has changed, and forebay_refusal says what is wrong.
 * After a fault of the library itself, forebay_fault says what happened, and every later call fails.
 */
#ifndef FOREBAY_H
#define FOREBAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Number of this binary interface; forebay_abi() returns the number of the library's interface. */
#define FOREBAY_ABI 1

/* The time that is never reached: there is nothing to wait for. */
#define FOREBAY_NEVER UINT64_MAX

/* The values that functions return. */
enum {
  FOREBAY_REFUSED = -2, /* a number is out of range: see forebay_refusal */
  FOREBAY_FAILED = -1, /* a pointer was NULL, or the queue has failed before */
  FOREBAY_NONE = 0,    /* there is nothing to return: the queue is empty, or the list is at its end */
  FOREBAY_OK = 1,      /* done; the result is where the last pointer leads */
  FOREBAY_WAIT = 2     /* packets wait, but none may leave before a certain time */
};

/* The ECN field of the IP header (RFC 3168, section 5). */
enum { FOREBAY_NOT_ECT = 0, FOREBAY_ECT1 = 1, FOREBAY_ECT0 = 2, FOREBAY_CE = 3 };

/* Why a packet came back by forebay_next_lost. */
enum {
  FOREBAY_EARLY = 1,    /* the law signalled congestion on a packet that cannot carry a mark */
  FOREBAY_FORCED = 2,   /* the law or the queue dropped it outright */
  FOREBAY_OVERFLOW = 3, /* the buffer was full */
  FOREBAY_DRAINED = 4   /* the caller asked for it, with forebay_drain */
};

typedef struct forebay_queue forebay_queue;

/* The settings of a queue. Set the whole structure to zero first, and then the fields that you need. */
typedef struct forebay_settings {
  const char *law;           /* "pie": a name of forebay_law_name */
  const char *const *params; /* "target=20ms" and so on, as after --set; ends with NULL. May be NULL */
  const char *queue;         /* "fq", or a table of TOML; NULL for the law's default queue */
  const char *rate;          /* of the link: "20Mbit/s"; 1bit/s to 10Tbit/s */
  const char *buffer;        /* "100p" or "150kB" */
  const char *packet;        /* usual size: "1500B", which is also the default (NULL) */
  uint64_t seed;             /* of the random numbers: the same seed and calls give the same results */
  bool ecn;                  /* true to mark ECN-capable packets with CE; false to drop them instead */
} forebay_settings;

typedef struct forebay_packet {
  uint64_t handle; /* the caller's; comes back with the packet */
  uint64_t flow;   /* the same for all packets of a flow, such as a hash of its addresses */
  uint64_t from;   /* the same for all packets of a sending host; 0 if hosts are not distinguished */
  uint64_t to;     /* the same for all packets to a receiving host; 0 likewise */
  uint32_t bytes;  /* 1 to 16777216 (16 MiB) */
  uint8_t ecn;     /* FOREBAY_NOT_ECT and so on */
  uint8_t dscp;    /* 0 to 63 */
  bool not_tcp;    /* true for a packet that is not TCP */
} forebay_packet;

/* A packet that leaves for the link. */
typedef struct forebay_departure {
  uint64_t handle;
  uint64_t sojourn_ns; /* time that it waited in the queue */
  uint32_t bytes;
  uint8_t ecn;         /* the ECN field, with the mark if there is one */
  uint8_t class_number; /* number for forebay_class_name; 0 if the queue has no classes */
  bool marked;         /* true if this queue has marked the packet (CE) */
} forebay_departure;

/* A packet that was dropped, or drained by the caller. */
typedef struct forebay_loss {
  uint64_t handle;
  uint64_t time_ns;
  uint32_t bytes;
  uint8_t why; /* FOREBAY_EARLY and so on */
} forebay_loss;

/* Counts since the start, and the present backlog (queued, queued_bytes). */
typedef struct forebay_counts {
  uint64_t arrived;
  uint64_t sent;
  uint64_t sent_bytes;
  uint64_t marked;
  uint64_t early;
  uint64_t forced;
  uint64_t overflow;
  uint64_t queued;
  uint64_t queued_bytes;
} forebay_counts;

/* Return the FOREBAY_ABI of the library, and its version, such as "1.0.0". */
uint32_t forebay_abi(void);
const char *forebay_version(void);

/* Return the name of the law, or of the kind of queue, with this number, from 0; NULL after the last. */
const char *forebay_law_name(size_t number);
const char *forebay_queue_name(size_t number);

/* Makes an empty queue, whose link counts as idle from the first call that has a time. Returns NULL if a
 * setting is wrong: `error`, which has `size` bytes, then has one line with the key, its fault and what is
 * expected. `error` may be NULL. */
forebay_queue *forebay_new(const forebay_settings *settings, char *error, size_t size);

/* Frees a queue; handles that it holds do not come back. NULL is ignored. */
void forebay_free(forebay_queue *queue);

/* Adds an arriving packet. This packet or others may be dropped at once: see forebay_next_lost. */
int forebay_enqueue(forebay_queue *queue, uint64_t now_ns, const forebay_packet *packet);

/* Takes the next packet for the link. FOREBAY_OK: `departure` has the packet. FOREBAY_NONE: the queue is
 * empty, and the link is idle until a packet arrives. FOREBAY_WAIT: no packet may leave before
 * *wait_until_ns. The call may drop packets: see forebay_next_lost. */
int forebay_dequeue(forebay_queue *queue, uint64_t now_ns, forebay_departure *departure,
                    uint64_t *wait_until_ns);

/* Returns the next packet that was dropped and has not been fetched yet; FOREBAY_NONE if there is none. */
int forebay_next_lost(forebay_queue *queue, forebay_loss *loss);

/* Removes all waiting packets; forebay_next_lost returns them. */
int forebay_drain(forebay_queue *queue, uint64_t now_ns);

/* forebay_next_timeout returns the time at which forebay_handle_timeout is due: FOREBAY_NEVER for a law
 * without a clock, and 0 before the first call that has a time, which starts the clock.
 * forebay_handle_timeout runs the law's clock. A late call makes up for the missed ticks: they are run one
 * by one while they change the law's state, up to 65,536 of them; the rest of a longer gap is computed by a
 * closed form of the law's equation. */
uint64_t forebay_next_timeout(const forebay_queue *queue);
int forebay_handle_timeout(forebay_queue *queue, uint64_t now_ns);

int forebay_count(const forebay_queue *queue, forebay_counts *counts);

/* Returns an inner value of the law by its name, such as "p", its probability; FOREBAY_NONE if the law has
 * no value of that name. */
int forebay_probe(const forebay_queue *queue, const char *name, double *value);

/* Returns the name of the queue's class with this number; NULL after the last. */
const char *forebay_class_name(const forebay_queue *queue, size_t number);

/* Changes "rate", "buffer", or the law's set-point under its name ("target=25ms" is
 * forebay_set(queue, "target", "25ms", ...)) while packets wait. FOREBAY_NONE: the key cannot change, or
 * not to this value; `error` says why, as in forebay_new. */
int forebay_set(forebay_queue *queue, const char *key, const char *value, char *error, size_t size);

/* Returns the fault of the library that made this queue fail; an empty text if the queue works. */
const char *forebay_fault(const forebay_queue *queue);

/* Returns why the last refused call was refused (FOREBAY_REFUSED); an empty text if none was. The text is
 * valid until the next refused call. */
const char *forebay_refusal(const forebay_queue *queue);

/* A network for tests of a transport: a whole path in virtual time, with every queue and law, and
 * simulated traffic in parallel with the caller's. A scenario describes the network; the caller sends the
 * packets of its [[traffic]] of kind "external", from both ends of each flow. These flows have numbers from
 * 0 in the scenario's order. Time passes only in forebay_network_poll. Every handle that is sent comes out
 * once, unless the scenario ends before. Threads and errors are as for queues. */
typedef struct forebay_network forebay_network;

/* The ends of a flow: the source, where its path begins, and the sink, where its path ends. */
enum { FOREBAY_SOURCE = 0, FOREBAY_SINK = 1 };

/* What forebay_network_poll returns. */
enum {
  FOREBAY_TIME = 0,      /* no event up to the requested time */
  FOREBAY_DELIVERED = 1, /* a packet has reached the other end */
  FOREBAY_LOST = 2,      /* a packet was lost */
  FOREBAY_END = 3        /* the scenario is over; later calls return this as well */
};

/* Why a packet was lost, besides FOREBAY_EARLY, FOREBAY_FORCED and FOREBAY_OVERFLOW. */
enum { FOREBAY_RANDOM = 5 /* the scenario's `loss` */ };

/* Set the whole structure to zero first, and then the fields that you need. */
typedef struct forebay_network_settings {
  const char *scenario;    /* its text, in TOML */
  const char *law;         /* a law in place of the scenario's, "pie"; NULL for its own */
  const char *const *sets; /* "bottleneck.rate=20Mbit/s" and so on, as after --set; ends with NULL.
                              May be NULL */
  uint64_t seed;           /* of all random draws */
} forebay_network_settings;

typedef struct forebay_datagram {
  uint64_t handle; /* the caller's; comes back with the packet */
  uint32_t flow;
  uint32_t bytes;  /* without the headers that the scenario adds */
  uint8_t end;     /* the end that sends it: FOREBAY_SOURCE or FOREBAY_SINK */
  uint8_t ecn;     /* FOREBAY_NOT_ECT and so on */
} forebay_datagram;

typedef struct forebay_event {
  uint64_t time_ns;
  uint64_t handle;
  uint32_t flow;
  uint32_t bytes;
  uint8_t end; /* the end that a packet has reached, or that has sent the lost packet */
  uint8_t ecn; /* on arrival: FOREBAY_CE if a queue has marked the packet */
  uint8_t why; /* the reason of a loss: FOREBAY_EARLY and so on */
} forebay_event;

/* Makes a network, at time 0. Returns NULL if the scenario is wrong: `error` then has one line. */
forebay_network *forebay_network_new(const forebay_network_settings *settings, char *error,
                                     size_t size);
void forebay_network_free(forebay_network *network);

/* Return the number of the caller's flows, and the largest packet of a flow, in bytes. */
uint32_t forebay_network_flows(const forebay_network *network);
uint32_t forebay_network_most_bytes(const forebay_network *network, uint32_t flow);

/* Returns the time at which the scenario ends. */
uint64_t forebay_network_end(const forebay_network *network);

/* Sends a packet. FOREBAY_NONE: it is too large, there is no such flow or end, or the scenario is over;
 * `error` says why. */
int forebay_network_send(forebay_network *network, uint64_t now_ns, const forebay_datagram *packet,
                         char *error, size_t size);

/* Records the fate of the caller's packets from now on. `capture` is a pcapng file with each packet as it
 * leaves the bottleneck's queue, with its ECN field, or as it is dropped there, with a comment. `events` is
 * a file of JSON lines, one for each packet that joins a queue, leaves it, is marked or is dropped. Either
 * may be NULL; with both NULL a recording ends, as it does in forebay_network_finish.
 * FOREBAY_NONE: a file cannot be written; `error` says why. */
int forebay_network_record(forebay_network *network, const char *capture, const char *events,
                           char *error, size_t size);

/* Lets time pass until a packet arrives or is lost, but at most until `until_ns`. Returns FOREBAY_TIME,
 * FOREBAY_DELIVERED, FOREBAY_LOST or FOREBAY_END; `event` has the time, and the packet if there is one. */
int forebay_network_poll(forebay_network *network, uint64_t until_ns, forebay_event *event);

/* Runs to the end of the scenario, while only the scenario's simulated traffic sends. */
int forebay_network_finish(forebay_network *network);

/* Returns, after forebay_network_finish, a metric of the traffic with the label `traffic`, or of the
 * bottleneck if `traffic` is NULL, such as "delay_p95_s". FOREBAY_NONE if there is no metric of that name. */
int forebay_network_metric(const forebay_network *network, const char *traffic, const char *name,
                           double *value);

/* Returns the fault of the library that made this network fail; an empty text if the network works. */
const char *forebay_network_fault(const forebay_network *network);

/* Returns the text of the RFC 7928 scenario with this number, whose bulk flows are the caller's, and its
 * name in *name, if `name` is not NULL. Returns NULL after the last. */
const char *forebay_network_rfc7928(size_t number, const char **name);

#ifdef __cplusplus
}
#endif

#endif
