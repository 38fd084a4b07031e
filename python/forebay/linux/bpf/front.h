/* The common part of all front ends: the law's numbers in maps, its clock, and a packet's arrival.
 *
 * A front end defines, before it includes this:
 *
 *   FRONT_HOLDS  number of packets that the shaper counts in its backlog while it is about to send them: 1
 *                for a separate shaper, whose send times are not known; 0 if the front end is the shaper
 */
#ifndef FOREBAY_FRONT_H
#define FOREBAY_FRONT_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "law.h"

char LICENSE[] SEC("license") = "GPL";

/* The fields of the kernel's structs that are read; the loader finds their offsets in this kernel. */
#define KERNEL __attribute__((preserve_access_index))

struct net_device {
	int ifindex;
	struct Qdisc *qdisc;
} KERNEL;
struct sk_buff {
	struct net_device *dev;
	unsigned char *head;
	unsigned char *data;
	__u32 end;
	__u16 network_header;
	__be16 protocol;
	char cb[48];
} KERNEL;
struct skb_shared_info {
	__u16 gso_segs;
} KERNEL;
struct qdisc_skb_cb {
	__u32 pkt_len;
} KERNEL;
struct netdev_queue {
	struct net_device *dev;
} KERNEL;
struct counter {
	__u64 value;
};
struct gnet_stats_basic_sync {
	struct counter bytes;
} KERNEL;
struct gnet_stats_queue {
	__u32 backlog;
	__u32 drops;
} KERNEL;
struct qdisc_skb_head {
	__u32 qlen;
} KERNEL;
struct Qdisc {
	struct netdev_queue *dev_queue;
	struct qdisc_skb_head q;
	struct gnet_stats_basic_sync bstats;
	struct gnet_stats_queue qstats;
} KERNEL;

extern void *bpf_rdonly_cast(const void *, __u32) __ksym;

/* Numbers of the device and the law. */
struct settings {
	__u64 interval_ns;
	__u64 ecn;
	__u64 ifindex;
	__u64 rate;
	__u64 packet_bytes;
	__u64 ns_per_byte;
	__u64 buffer_bytes;
	struct law_config law;
};

struct running {
	struct bpf_spin_lock lock;
	__u32 started;
	__u64 start_ns;
	__u64 next_ns; /* when the next tick is due */
	/* The last arrival, and the backlog after it, from which the queue until the next arrival follows. */
	__u64 last_ns;
	__u64 last_backlog;
	/* The link: the time until which it sends, which is exact if the front end is the shaper. */
	__u64 busy_until_ns;
	__u64 busy_until_part; /* of a nanosecond, 2^-16 */
	__u64 overflows;
	__u64 departed_ns; /* when departures were counted last */
	__u64 departed_bytes;
	__u64 other_bytes;
	__u64 was_empty;
	/* For statistics: sums over the clock's ticks. */
	__u64 ticks;
	__u64 late_ns;
	__u64 latest_ns;
	__u64 backlog_sum;
	__u64 backlog_square_sum; /* of 64 bytes */
	__u64 p_sum;              /* in units of 2^-40 */
	struct law_state law;
};

struct tally {
	__u64 packets;
	__u64 bytes;
	__u64 marks;
	__u64 drops;
	__u64 marked_packets;
	__u64 dropped_packets;
	__u64 random; /* of `draw` */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} active SEC(".maps");

/* There are two copies: the inactive one is written, and then made active. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct running);
} running SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tally);
} tally SEC(".maps");

/* The law's queue: the packets that wait. */
static __always_inline void law_queue(const struct settings *site, struct fb_queue *queue, __u32 qlen,
				      __u32 backlog)
{
	__u64 held = FRONT_HOLDS * site->packet_bytes;

	queue->packets = qlen > FRONT_HOLDS ? qlen - FRONT_HOLDS : 0;
	queue->bytes = backlog > held ? backlog - held : 0;
	queue->rate = site->rate;
}

/* Returns true if the link has nothing to send. */
static __always_inline int link_rests(const struct running *state, __u32 qlen, __u64 now)
{
	return !qlen && (FRONT_HOLDS || now > state->busy_until_ns);
}

/* The law's clock has no timer: the ticks that are due run when the next packet arrives, before the law
 * judges it, each with the queue length at the time at which the tick was due. A packet therefore meets the
 * probability that a punctual timer would have left. A timer of BPF would have to be kept alive by a
 * process or by a pin in some mount, and would stop without a message when that mount ends (decision 081). */

/* Most ticks that one packet runs after a pause; those beyond are counted with an empty queue. */
#define MOST_TICKS 8192

struct arrival {
	__u64 now_ns;
	__u32 qlen;
	__u32 backlog;
	__u64 sent_bytes; /* by the qdisc, ever */
};

/* Returns the backlog at a time between the last arrival and this one: it only shrinks, at the link's rate. */
static __always_inline __u64 backlog_at(const struct running *state, const struct settings *site,
					const struct arrival *arrival, __u64 at_ns)
{
	__u64 elapsed_ns = at_ns > state->last_ns ? at_ns - state->last_ns : 0;
	__u64 sent = fb_mul(elapsed_ns, site->rate, FB_RATE);
	__u64 rest = state->last_backlog > sent ? state->last_backlog - sent : 0;

	return rest > arrival->backlog ? rest : arrival->backlog;
}

#ifdef LAW_DEPARTED
/* Counts the bytes that have left since departures were last counted. Only an interval in which the link
 * was always busy shows how fast the link sends. */
static __always_inline void count_departures(struct running *state, struct fb_queue *queue,
					     const struct arrival *arrival)
{
	__u64 rests = link_rests(state, arrival->qlen, arrival->now_ns), others;

	if (arrival->now_ns <= state->departed_ns)
		return;
	others = __sync_lock_test_and_set(&state->other_bytes, 0);
	if (!__sync_lock_test_and_set(&state->was_empty, rests) && !rests) {
		queue->busy_ns = arrival->now_ns - state->departed_ns;
		queue->departed_bytes = arrival->sent_bytes - state->departed_bytes;
		queue->departed_bytes -= fb_min(queue->departed_bytes, others);
	}
	state->departed_bytes = arrival->sent_bytes;
	state->departed_ns = arrival->now_ns;
}
#endif

/* Runs one tick that is due; returns 1 if none is due. */
static long run_tick(__u32 number, void *context)
{
	const struct arrival *arrival = context;
	__u32 zero = 0, *which = bpf_map_lookup_elem(&active, &zero);
	struct running *state = bpf_map_lookup_elem(&running, &zero);
	struct settings *site = which ? bpf_map_lookup_elem(&settings, which) : 0;
	struct fb_queue queue = {};
	__u64 backlog, late;

	if (!site || !state)
		return 1;
	bpf_spin_lock(&state->lock);
	if (state->next_ns > arrival->now_ns) {
		bpf_spin_unlock(&state->lock);
		return 1;
	}
	backlog = backlog_at(state, site, arrival, state->next_ns);
	/* No tick reads the number of packets, which is known only for the present time. */
	law_queue(site, &queue, arrival->qlen, backlog);
#ifdef LAW_DEPARTED
	count_departures(state, &queue, arrival);
#endif
	queue.now_ns = state->next_ns - state->start_ns;
#ifdef LAW_TICK
	law_tick(&site->law, &state->law, &queue);
#endif
	late = arrival->now_ns - state->next_ns;
	state->next_ns += site->interval_ns;
	state->ticks++;
	state->late_ns += late;
	if (late > state->latest_ns)
		state->latest_ns = late;
	state->backlog_sum += queue.bytes;
	state->backlog_square_sum += (queue.bytes >> 6) * (queue.bytes >> 6);
	state->p_sum += (__u64)state->law.p >> 20;
	bpf_spin_unlock(&state->lock);
#ifdef LAW_DESIGN
	law_design(&site->law, &state->law, queue.now_ns);
#endif
	return 0;
}

/* Advances the clock to the time of an arrival. */
static __always_inline void run_clock(struct running *state, const struct settings *site,
				      struct Qdisc *qdisc, __u64 now_ns)
{
	struct arrival arrival = {.now_ns = now_ns};
	__u64 due;

	if (now_ns < state->next_ns)
		return;
	arrival.qlen = qdisc->q.qlen;
	arrival.backlog = qdisc->qstats.backlog;
#ifdef LAW_DEPARTED
	arrival.sent_bytes = *(__u64 *)&qdisc->bstats.bytes;
#endif
	bpf_loop(MOST_TICKS, run_tick, &arrival, 0);
	if (now_ns < state->next_ns)
		return;
	/* After a long pause, the law has reached its steady state. */
	bpf_spin_lock(&state->lock);
	if (now_ns >= state->next_ns && site->interval_ns) {
		due = (now_ns - state->next_ns) / site->interval_ns + 1;
		state->next_ns += due * site->interval_ns;
		state->ticks += due;
		state->p_sum += due * ((__u64)state->law.p >> 20);
	}
	bpf_spin_unlock(&state->lock);
}

static __always_inline void start(struct running *state, const struct settings *site, __u64 now)
{
	if (__sync_lock_test_and_set(&state->started, 1))
		return;
	state->start_ns = state->busy_until_ns = state->last_ns = state->departed_ns = now;
	/* Bytes that the qdisc sent before do not belong to this law. */
	state->was_empty = 1;
	state->next_ns = now + site->interval_ns;
}

enum { IS_TCP = 1, IS_ECT = 2 };

/* Reads the first bytes of a packet's IP header. */
static __always_inline int protocol(const __u8 *bytes, __be16 ethertype)
{
	int six = ethertype == bpf_htons(ETH_P_IPV6), found = 0;

	if ((six ? bytes[6] : bytes[9]) == 6)
		found |= IS_TCP;
	if ((six ? bytes[1] >> 4 : bytes[1]) & 3)
		found |= IS_ECT;
	return found;
}

/* PCG-XSH-RR (O'Neill 2014, HMC-CS-2014-0905): bpf_get_prandom_u32 takes ten times as long. Each
 * processor has a state of its own. */
static __always_inline __u32 draw(struct tally *count)
{
	__u64 state = count->random;
	__u32 mixed, turn;

	if (!state)
		state = (__u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32();
	count->random = state * 6364136223846793005ULL + 1442695040888963407ULL;
	mixed = ((state >> 18) ^ state) >> 27;
	turn = state >> 59;
	return mixed >> turn | mixed << (-turn & 31);
}

#if defined(LAW_ARRIVAL) || defined(LAW_IDLE) || defined(LAW_DEPARTED)
#define FRONT_SEES_QUEUE
#endif
/* A lock takes 45 ns, more than a law does. */
#if (defined(LAW_ARRIVAL) && !defined(LAW_AVERAGE)) || defined(LAW_IDLE) || defined(LAW_OVERFLOW)
#define FRONT_LOCKS
#endif
#if defined(LAW_DEPARTED) || defined(LAW_SEES_MARKS)
#define FRONT_SEES_HEADER
#endif
/* The law knows how long the link has been idle. */
#if defined(LAW_TIMES) || (defined(LAW_DEPARTED) && !FRONT_HOLDS)
#define FRONT_SEES_TIME
#endif

/* Returns the law's verdict on an arriving packet, whose header `is` describes. */
static __always_inline int arrives(struct running *state, const struct settings *site,
				   struct tally *count, struct Qdisc *qdisc,
				   struct fb_packet *packet, int is, __u64 now)
{
	int verdict = FB_PASS;
#ifdef FRONT_SEES_QUEUE
	__u32 qlen = qdisc->q.qlen, backlog = qdisc->qstats.backlog;
#ifdef LAW_OVERFLOW
	__u32 full = qdisc->qstats.drops;
#endif
#ifdef FRONT_SEES_TIME
	__u64 sent;
	struct fb_queue queue = {.now_ns = now - state->start_ns};
#else
	struct fb_queue queue = {};

#endif

	packet->marks = site->ecn && is & IS_ECT;
	packet->random = draw(count);
	law_queue(site, &queue, qlen, backlog);
#ifdef FRONT_LOCKS
	bpf_spin_lock(&state->lock);
#endif
#ifdef FRONT_SEES_TIME
	/* The link is idle once it has sent the last packet that arrived and was not dropped. */
	sent = state->busy_until_ns > state->last_ns ? state->busy_until_ns : state->last_ns;
	if (!qlen && now > sent)
		queue.idle_ns = now - sent;
#endif
#ifdef LAW_OVERFLOW
	if (full != state->overflows) {
		if (state->overflows)
			law_overflow(&site->law, &state->law, queue.now_ns);
		state->overflows = full;
	}
#endif
#ifdef LAW_IDLE
	if (queue.idle_ns)
		law_idle(&site->law, &state->law, queue.now_ns - queue.idle_ns);
#endif
#ifdef LAW_DEPARTED
	if (link_rests(state, qlen, now))
		state->was_empty = 1;
	if (!(is & IS_TCP))
		__sync_fetch_and_add(&state->other_bytes, packet->bytes);
#endif
#ifdef LAW_AVERAGE
	law_averages(&site->law, &state->law, &queue, packet);
#endif
	verdict = law_arrival(&site->law, &state->law, &queue, packet);
#if FRONT_HOLDS && defined(FRONT_SEES_TIME)
	if (!verdict) {
		sent = qlen || state->busy_until_ns < now ? now : state->busy_until_ns;
		state->busy_until_ns = sent + fb_times(backlog + packet->bytes, site->ns_per_byte);
	}
#endif
#ifdef FRONT_LOCKS
	bpf_spin_unlock(&state->lock);
#endif
#else
	/* Only the clock changes the probability. */
	if (state->law.p) {
		packet->random = draw(count);
		verdict = law_arrival(&site->law, &state->law, 0, packet);
	}
#endif
	return verdict;
}

/* Stores the queue after an arrival, for the ticks before the next arrival. */
static __always_inline void has_arrived(struct running *state, __u64 now, __u64 backlog)
{
	state->last_ns = now;
	state->last_backlog = backlog;
}

#endif
