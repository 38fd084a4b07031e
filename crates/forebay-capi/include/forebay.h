/* forebay.h: a queue under an AQM law, for programs that have packets and a clock of their own.
 *
 * Time is the caller's, in nanoseconds from any start before 2^63 (CLOCK_REALTIME and CLOCK_MONOTONIC
 * are fine). The first call that has a time starts the law's clock. Time never goes back: an earlier time
 * counts as the last one. A packet is a handle, a size and a few facts: its bytes stay with the caller.
 * Every handle that goes in comes out exactly once: by forebay_dequeue, or by forebay_next_lost.
 *
 * Threads: a queue belongs to one thread at a time; it may move between them. Different queues
 * share nothing. No function blocks, reads a clock, calls back, or keeps a pointer that it was given.
 * The work of a call is bounded, also after a gap of years.
 *
 * Errors: texts are UTF-8. A function that can fail returns FOREBAY_FAILED, or NULL. A number that is
 * out of range is FOREBAY_REFUSED: nothing has changed, and forebay_refusal says what is wrong. After a
 * fault of the library itself, forebay_fault says what happened, and the queue only fails from then on.
 */
#ifndef FOREBAY_H
#define FOREBAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Number of this binary interface; forebay_abi() has that of the library. */
#define FOREBAY_ABI 1

/* No time at all: there is nothing to wait for. */
#define FOREBAY_NEVER UINT64_MAX

/* What functions return. */
enum {
  FOREBAY_REFUSED = -2, /* a number is out of range: see forebay_refusal */
  FOREBAY_FAILED = -1, /* a pointer was NULL, or the queue has failed before */
  FOREBAY_NONE = 0,    /* there is nothing: the queue is empty, or the list at its end */
  FOREBAY_OK = 1,      /* done; the result is where the last pointer leads */
  FOREBAY_WAIT = 2     /* packets wait, and none may leave before a time */
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

/* What a queue is made of. Set all to zero first, then what is wanted. */
typedef struct forebay_settings {
  const char *law;           /* "pie": a name of forebay_law_name */
  const char *const *params; /* "target=20ms" and so on, as after --set; ends with NULL. May be NULL */
  const char *queue;         /* "fq", or a table of TOML; NULL for what the law comes in */
  const char *rate;          /* of the link: "20Mbit/s"; 1bit/s to 10Tbit/s */
  const char *buffer;        /* "100p" or "150kB" */
  const char *packet;        /* usual size: "1500B", which NULL means, too */
  uint64_t seed;             /* of the random numbers: the same seed and calls, the same answers */
  bool ecn;                  /* whether a signal may be a CE mark; false turns all into drops */
} forebay_settings;

typedef struct forebay_packet {
  uint64_t handle; /* the caller's; comes back with the packet */
  uint64_t flow;   /* the same for all packets of a flow, such as a hash of its addresses */
  uint64_t from;   /* the same for all packets of a host; 0 where hosts are not told apart */
  uint64_t to;     /* likewise */
  uint32_t bytes;  /* 1 to 16777216 (16 MiB) */
  uint8_t ecn;     /* FOREBAY_NOT_ECT and so on */
  uint8_t dscp;    /* 0 to 63 */
  bool not_tcp;    /* true for a packet that no TCP carries */
} forebay_packet;

/* A packet that leaves for the link. */
typedef struct forebay_departure {
  uint64_t handle;
  uint64_t sojourn_ns; /* how long it waited */
  uint32_t bytes;
  uint8_t ecn;         /* as it is now */
  uint8_t class_number; /* of forebay_class_name; 0 where there are none */
  bool marked;         /* whether this queue has set CE */
} forebay_departure;

/* A packet that does not leave. */
typedef struct forebay_loss {
  uint64_t handle;
  uint64_t time_ns;
  uint32_t bytes;
  uint8_t why; /* FOREBAY_EARLY and so on */
} forebay_loss;

/* Counts from the start, and what waits now. */
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

/* FOREBAY_ABI of the library, and its version, such as "0.1.0". */
uint32_t forebay_abi(void);
const char *forebay_version(void);

/* Name of a law by its number, from 0; NULL past the last. Likewise of a kind of queue. */
const char *forebay_law_name(size_t number);
const char *forebay_queue_name(size_t number);

/* Makes an empty queue, idle since the first call that has a time. NULL where a setting is wrong: `error`, of `size` bytes,
 * then has one line with the key, its fault and what is expected. `error` may be NULL. */
forebay_queue *forebay_new(const forebay_settings *settings, char *error, size_t size);

/* Frees a queue; handles that it holds do not come back. NULL does nothing. */
void forebay_free(forebay_queue *queue);

/* A packet comes. It, or others, may be lost at once: see forebay_next_lost. */
int forebay_enqueue(forebay_queue *queue, uint64_t now_ns, const forebay_packet *packet);

/* The link asks for a packet. FOREBAY_OK: `departure` has it. FOREBAY_NONE: the queue is empty, and
 * the link is idle until a packet comes. FOREBAY_WAIT: no packet may leave before *wait_until_ns.
 * Packets may be lost on the way: see forebay_next_lost. */
int forebay_dequeue(forebay_queue *queue, uint64_t now_ns, forebay_departure *departure,
                    uint64_t *wait_until_ns);

/* The next packet that was lost and has not been fetched; FOREBAY_NONE where there is none. */
int forebay_next_lost(forebay_queue *queue, forebay_loss *loss);

/* Gives up all that waits: forebay_next_lost has it. */
int forebay_drain(forebay_queue *queue, uint64_t now_ns);

/* When the law wants forebay_handle_timeout; FOREBAY_NEVER for one without a clock, and 0 before the
 * first call that has a time, which starts the clock. A late call makes up for the ticks that were
 * missed: they are run one by one while they change anything, up to some 65,000; what is left of a longer
 * gap is jumped over by a closed form of the law's equation. */
uint64_t forebay_next_timeout(const forebay_queue *queue);
int forebay_handle_timeout(forebay_queue *queue, uint64_t now_ns);

int forebay_count(const forebay_queue *queue, forebay_counts *counts);

/* An inner value of the law by its name, such as "p", its probability; FOREBAY_NONE where the law
 * has none of that name. */
int forebay_probe(const forebay_queue *queue, const char *name, double *value);

/* Name of a class of the queue by its number; NULL past the last. */
const char *forebay_class_name(const forebay_queue *queue, size_t number);

/* Changes "rate", "buffer", or the law's set-point under its name ("target=25ms" is
 * forebay_set(queue, "target", "25ms", ...)) while packets wait. FOREBAY_NONE: it cannot change, or
 * not to this; `error` says why, as in forebay_new. */
int forebay_set(forebay_queue *queue, const char *key, const char *value, char *error, size_t size);

/* What has gone wrong in the library; an empty text where nothing has. */
const char *forebay_fault(const forebay_queue *queue);

/* Why the last call that returned FOREBAY_REFUSED did; an empty text before the first. It is valid until
 * the next such call. */
const char *forebay_refusal(const forebay_queue *queue);

/* A network for tests of a transport: a whole path in virtual time, with every queue and law, and
 * simulated traffic beside. A scenario says what it is; flows of its [[traffic]] of kind "external" are
 * the caller's, from both ends, with numbers from 0 in the scenario's order. No time passes but by
 * forebay_network_poll. Every handle that is sent comes out once, unless the scenario ends before.
 * Threads and errors as above. */
typedef struct forebay_network forebay_network;

/* The end of a flow: where its path begins, and where it ends. */
enum { FOREBAY_SOURCE = 0, FOREBAY_SINK = 1 };

/* What forebay_network_poll finds. */
enum {
  FOREBAY_TIME = 0,      /* nothing up to the time that was asked for */
  FOREBAY_DELIVERED = 1, /* a packet reaches the other end */
  FOREBAY_LOST = 2,      /* a packet does not */
  FOREBAY_END = 3        /* the scenario is over, and so it is from now on */
};

/* Why a packet was lost, besides FOREBAY_EARLY, FOREBAY_FORCED and FOREBAY_OVERFLOW. */
enum { FOREBAY_RANDOM = 5 /* the scenario's `loss` */ };

/* Set all to zero first, then what is wanted. */
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
  uint8_t end;     /* that sends it: FOREBAY_SOURCE or FOREBAY_SINK */
  uint8_t ecn;     /* FOREBAY_NOT_ECT and so on */
} forebay_datagram;

typedef struct forebay_event {
  uint64_t time_ns;
  uint64_t handle;
  uint32_t flow;
  uint32_t bytes;
  uint8_t end; /* that a packet has reached, or that has sent the one that was lost */
  uint8_t ecn; /* as a packet arrives: FOREBAY_CE where a queue has marked it */
  uint8_t why; /* it was lost */
} forebay_event;

/* Makes a network, at time 0. NULL where the scenario is wrong: `error` then has one line. */
forebay_network *forebay_network_new(const forebay_network_settings *settings, char *error,
                                     size_t size);
void forebay_network_free(forebay_network *network);

/* How many flows the caller has, and the most bytes that one of its packets may have. */
uint32_t forebay_network_flows(const forebay_network *network);
uint32_t forebay_network_most_bytes(const forebay_network *network, uint32_t flow);

/* When the scenario ends. */
uint64_t forebay_network_end(const forebay_network *network);

/* Sends a packet. FOREBAY_NONE: it does not fit, there is no such flow or end, or the scenario is over;
 * `error` says why. */
int forebay_network_send(forebay_network *network, uint64_t now_ns, const forebay_datagram *packet,
                         char *error, size_t size);

/* Records what becomes of the caller's packets from now on: `capture` is a file of pcapng that takes each
 * of them as it leaves the bottleneck's queue, with its ECN field, or is dropped there, with a comment;
 * `events` is a file of lines of JSON, one for each packet that joins a queue, leaves one, is marked or
 * dropped. Either may be NULL; with both NULL a recording ends, as in forebay_network_finish.
 * FOREBAY_NONE: a file cannot be written; `error` says why. */
int forebay_network_record(forebay_network *network, const char *capture, const char *events,
                           char *error, size_t size);

/* Lets time pass until a packet arrives or is lost, and no further than `until_ns`; returns
 * FOREBAY_TIME and so on. `event` has its time, and the packet where there is one. */
int forebay_network_poll(forebay_network *network, uint64_t until_ns, forebay_event *event);

/* Runs to the end of the scenario, where nothing more is sent but by its own traffic. */
int forebay_network_finish(forebay_network *network);

/* After it, a metric of the bottleneck, such as "delay_p95_s", or of the traffic with a label;
 * `traffic` is NULL for the bottleneck. FOREBAY_NONE where there is none of that name. */
int forebay_network_metric(const forebay_network *network, const char *traffic, const char *name,
                           double *value);

/* What has gone wrong in the library; an empty text where nothing has. */
const char *forebay_network_fault(const forebay_network *network);

/* A scenario of RFC 7928 whose bulk flows are the caller's: its text and, where `name` is not NULL,
 * its name. NULL past the last. */
const char *forebay_network_rfc7928(size_t number, const char **name);

#ifdef __cplusplus
}
#endif

#endif
