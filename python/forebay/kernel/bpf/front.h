/* What every front end has: the law's numbers in maps, its clock, and a packet's arrival.
 *
 * A front end says, before it includes this:
 *
 *   FRONT_HOLDS  packets that the shaper keeps in its backlog while it is about to send them: 1 where it is
 *                another's, of which is not known when it has sent them; 0 where the front end is the shaper
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

/* Of the kernel's structs what is read; the loader looks up where this kernel has it. */
#define TIMER_ABS 1 /* BPF_F_TIMER_ABS, which older headers have not */
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
	__u64 qdisc; /* its address, for the clock, which has no packet to find it by */
	__u64 start_ns;
	__u64 next_ns;
	/* The link: until when it sends, exactly where the front end is its shaper. */
	__u64 busy_until_ns;
	__u64 busy_until_part; /* of a nanosecond, 2^-16 */
	__u64 last_ns;
	__u64 overflows;
	__u64 departed_bytes;
	__u64 other_bytes;
	__u64 was_empty;
	/* For statistics: sums over the clock's ticks. */
	__u64 ticks;
	__u64 late_ns;
	__u64 latest_ns;
	__u64 backlog_bytes;
	__u64 backlog_packets;
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

struct clock {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} active SEC(".maps");

/* Two of them: the one that is not active is written, and then made active. */
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

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct clock);
} clock SEC(".maps");

/* The law's queue: what waits. */
static __always_inline void law_queue(const struct settings *site, struct fb_queue *queue, __u32 qlen,
				      __u32 backlog)
{
	__u64 held = FRONT_HOLDS * site->packet_bytes;

	queue->packets = qlen > FRONT_HOLDS ? qlen - FRONT_HOLDS : 0;
	queue->bytes = backlog > held ? backlog - held : 0;
	queue->rate = site->rate;
}

/* Whether the link has nothing to send. */
static __always_inline int link_rests(const struct running *state, __u32 qlen, __u64 now)
{
	return !qlen && (FRONT_HOLDS || now > state->busy_until_ns);
}

static int on_clock(void *map, __u32 *key, struct clock *value)
{
	__u32 zero = 0, *which = bpf_map_lookup_elem(&active, &zero);
	struct running *state = bpf_map_lookup_elem(&running, &zero);
	struct settings *site = which ? bpf_map_lookup_elem(&settings, which) : 0;
	struct fb_queue queue = {};
	__u64 now = bpf_ktime_get_ns(), late;
	__u32 qlen = 0, backlog = 0;
	struct Qdisc *qdisc;
	int i;
#ifdef LAW_DEPARTED
	__u64 gone = 0, rests, others;
#endif

	if (!site || !state)
		return 0;
	qdisc = bpf_rdonly_cast((void *)state->qdisc, bpf_core_type_id_kernel(struct Qdisc));
	/* A qdisc that is gone is read without harm, and is no other device's. */
	if (qdisc->dev_queue->dev->ifindex == site->ifindex) {
		qlen = qdisc->q.qlen;
		backlog = qdisc->qstats.backlog;
#ifdef LAW_DEPARTED
		gone = *(__u64 *)&qdisc->bstats.bytes;
#endif
	}
	law_queue(site, &queue, qlen, backlog);
	late = now > state->next_ns ? now - state->next_ns : 0;

	bpf_spin_lock(&state->lock);
#ifdef LAW_DEPARTED
	/* Only an interval in which the link sent all the time says how fast it sends. */
	rests = link_rests(state, qlen, now);
	others = __sync_lock_test_and_set(&state->other_bytes, 0);
	if (!__sync_lock_test_and_set(&state->was_empty, rests) && !rests) {
		queue.busy_ns = site->interval_ns + late;
		queue.departed_bytes = gone - state->departed_bytes;
		queue.departed_bytes -= fb_min(queue.departed_bytes, others);
	}
	state->departed_bytes = gone;
#endif
	/* A clock that is late runs every tick that it missed. */
	for (i = 0; i < 8; i++) {
		if (i && state->next_ns > now)
			break;
		queue.now_ns = state->next_ns - state->start_ns;
#ifdef LAW_TICK
		law_tick(&site->law, &state->law, &queue);
		queue.busy_ns = 0;
#endif
		state->next_ns += site->interval_ns;
	}
	if (state->next_ns <= now)
		state->next_ns = now + site->interval_ns;
	state->ticks++;
	state->late_ns += late;
	if (late > state->latest_ns)
		state->latest_ns = late;
	state->backlog_bytes = backlog;
	state->backlog_packets = qlen;
	state->backlog_sum += queue.bytes;
	state->backlog_square_sum += (queue.bytes >> 6) * (queue.bytes >> 6);
	state->p_sum += (__u64)state->law.p >> 20;
	bpf_spin_unlock(&state->lock);
#ifdef LAW_DESIGN
	law_design(&site->law, &state->law, queue.now_ns);
#endif
	bpf_timer_start(&value->timer, state->next_ns, TIMER_ABS);
	return 0;
}

static __always_inline void start(struct running *state, const struct settings *site, __u64 now)
{
	__u32 zero = 0;
	struct clock *value = bpf_map_lookup_elem(&clock, &zero);

	if (!value || __sync_lock_test_and_set(&state->started, 1))
		return;
	state->start_ns = state->busy_until_ns = state->last_ns = now;
	state->next_ns = now + site->interval_ns;
	if (bpf_timer_init(&value->timer, &clock, 1 /* CLOCK_MONOTONIC */))
		return;
	bpf_timer_set_callback(&value->timer, on_clock);
	bpf_timer_start(&value->timer, state->next_ns, TIMER_ABS);
}

enum { IS_TCP = 1, IS_ECT = 2 };

/* Of the first bytes of a packet's IP header. */
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
/* A lock takes 45 ns, which is more than a law. */
#if (defined(LAW_ARRIVAL) && !defined(LAW_AVERAGE)) || defined(LAW_IDLE) || defined(LAW_OVERFLOW)
#define FRONT_LOCKS
#endif
#if defined(LAW_DEPARTED) || defined(LAW_SEES_MARKS)
#define FRONT_SEES_HEADER
#endif
/* Reading the clock costs as much as a law does. */
#if defined(LAW_TIMES) || (defined(LAW_DEPARTED) && !FRONT_HOLDS)
#define FRONT_SEES_TIME
#endif

/* The law's verdict on a packet that comes; is: of its header. */
static __always_inline int arrives(struct running *state, const struct settings *site,
				   struct tally *count, struct Qdisc *qdisc,
				   struct fb_packet *packet, int is)
{
	int verdict = FB_PASS;
#ifdef FRONT_SEES_QUEUE
	__u32 qlen = qdisc->q.qlen, backlog = qdisc->qstats.backlog;
#ifdef LAW_OVERFLOW
	__u32 full = qdisc->qstats.drops;
#endif
#ifdef FRONT_SEES_TIME
	__u64 now = bpf_ktime_get_ns(), sent;
	struct fb_queue queue = {.now_ns = now - state->start_ns};
#else
	const __u64 now = 0;
	struct fb_queue queue = {};

	(void)now;
#endif

	packet->marks = site->ecn && is & IS_ECT;
	packet->random = draw(count);
	law_queue(site, &queue, qlen, backlog);
#ifdef FRONT_LOCKS
	bpf_spin_lock(&state->lock);
#endif
#ifdef FRONT_SEES_TIME
	/* The link is idle from when it has sent what came last, unless that was dropped. */
	sent = state->busy_until_ns > state->last_ns ? state->busy_until_ns : state->last_ns;
	if (!qlen && now > sent)
		queue.idle_ns = now - sent;
	state->last_ns = now;
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
	/* A probability that only the clock moves. */
	if (state->law.p) {
		packet->random = draw(count);
		verdict = law_arrival(&site->law, &state->law, 0, packet);
	}
#endif
	return verdict;
}

#endif
