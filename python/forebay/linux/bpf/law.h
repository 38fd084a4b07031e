/* The inputs and verdicts of a law in the kernel. A front end (a classifier, a qdisc, a test on the host)
 * includes this, and through it the law that FOREBAY_LAW names: one law is compiled at a time.
 *
 * A law's header declares its numbers as lists, LAW_CONFIG and LAW_STATE, and has the hooks that it
 * needs. A macro declares each optional hook that the header has:
 *
 *   LAW_TICK      law_tick, at fixed intervals
 *   LAW_ARRIVAL   law_arrival, which changes the state at every packet; without it a packet is
 *                 signalled with the probability `p` of the last tick
 *   LAW_AVERAGE   law_weight, the weight of a packet in the field `average`, which is all that an arrival
 *                 changes: law_arrival runs after it, and both run without the lock
 *   LAW_TIMES     its law_arrival, or another hook of a packet, reads now_ns or idle_ns
 *   LAW_OVERFLOW  law_overflow, when the buffer was full
 *   LAW_IDLE      law_idle, when the link has run out of packets
 *   LAW_DESIGN    law_design, which follows a tick and only writes numbers that stand alone: it runs
 *                 without the lock, as a function that the verifier sees once
 *   LAW_DEPARTED  its tick reads departed_bytes
 */
#ifndef FOREBAY_LAW_H
#define FOREBAY_LAW_H

#include "fixed.h"

enum { FB_PASS, FB_MARK, FB_DROP };

struct fb_queue {
	__u64 now_ns;  /* since the law was started */
	__u64 bytes;   /* without the arriving packet and the packet that is being sent */
	__u64 packets; /* as the device counts them: one may have many segments */
	__u64 idle_ns; /* time for which the link has had nothing to send */
	__u64 rate;    /* of the link */
	/* Since the last tick: */
	__u64 departed_bytes; /* of TCP */
	__u64 busy_ns;
};

struct fb_packet {
	__u64 bytes;
	__u64 segments; /* packets on the wire that it becomes */
	__u64 random;   /* 32 bits */
	__u64 marks;    /* whether a signal would be a mark */
};

#ifdef __bpf__
#define FB_GLOBAL __attribute__((noinline))
#else
#define FB_GLOBAL static
#endif

#define FB_FIELD(name) __s64 name;

/* Returns true with this probability. */
static __always_inline int fb_chance(__s64 p, __u64 random)
{
	return (__s64)(random << (FB_P - 32)) < p;
}

/* The probability that at least one segment is signalled is 1 − (1 − p)^n ≤ n·p. This returns n·p, the
 * expected number of signals, which is what TCP would see with single segments. */
static __always_inline __s64 fb_of_segments(__s64 p, const struct fb_packet *packet)
{
	return packet->segments == 1 ? p : (__s64)fb_min(fb_mul(p, packet->segments, 0), FB_ONE);
}

/* A law's header uses this macro after its lists, to declare its structs. */
#define LAW_STRUCTS                     \
	struct law_config {             \
		LAW_CONFIG(FB_FIELD)    \
	};                              \
	struct law_state {              \
		LAW_STATE(FB_FIELD)     \
	};

#define FB_TEXT(name) #name
#define FB_HEADER(name) FB_TEXT(name)
#include FB_HEADER(FOREBAY_LAW)

#ifdef LAW_AVERAGE
/* Updates the average. Processors may do this at the same time, each from the value that another has
 * written. A processor that loses eight such races leaves its packet out. */
static __always_inline void law_averages(const struct law_config *config, struct law_state *state,
					 const struct fb_queue *queue, const struct fb_packet *packet)
{
	__s64 weight = law_weight(config, packet), was, next;
	int i;

	for (i = 0; i < 8 && weight; i++) {
		was = *(volatile __s64 *)&state->average;
		next = fb_toward(was, (__s64)queue->bytes << FB_LENGTH, weight);
		if (next == was || __sync_val_compare_and_swap(&state->average, was, next) == was)
			break;
	}
}
#endif

#ifndef LAW_ARRIVAL
static __always_inline int law_arrival(const struct law_config *config, struct law_state *state,
				       const struct fb_queue *queue, const struct fb_packet *packet)
{
	(void)config;
	(void)queue;
	return fb_chance(fb_of_segments(state->p, packet), packet->random) ? FB_MARK : FB_PASS;
}
#endif

#endif
