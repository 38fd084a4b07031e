/* A law before a shaper: a classifier at the egress of a device, which reads the backlog of the device's
 * root qdisc and drops or marks. It writes to nothing but its own maps and the packet's ECN field. */
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

extern void *bpf_cast_to_kern_ctx(void *) __ksym;
extern void *bpf_rdonly_cast(const void *, __u32) __ksym;

/* Numbers of the device and the law. */
struct settings {
	__u64 interval_ns;
	__u64 ecn;
	__u64 ifindex;
	__u64 rate;
	__u64 packet_bytes;
	__u64 ns_per_byte;
	struct law_config law;
};

struct running {
	struct bpf_spin_lock lock;
	__u32 started;
	__u64 qdisc; /* its address, for the clock, which has no packet to find it by */
	__u64 start_ns;
	__u64 next_ns;
	/* The link, as far as arrivals tell. */
	__u64 busy_until_ns;
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

/* The law's queue: without the packet that the shaper is about to send, which it keeps in its backlog. */
static __always_inline void law_queue(const struct settings *site, struct fb_queue *queue, __u32 qlen,
				      __u32 backlog)
{
	queue->packets = qlen ? qlen - 1 : 0;
	queue->bytes = backlog > site->packet_bytes ? backlog - site->packet_bytes : 0;
	queue->rate = site->rate;
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
	__u64 gone = 0;
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
	if (!state->was_empty && qlen) {
		queue.busy_ns = site->interval_ns + late;
		queue.departed_bytes = gone - state->departed_bytes;
		queue.departed_bytes -= fb_min(queue.departed_bytes, state->other_bytes);
	}
	state->departed_bytes = gone;
	state->other_bytes = 0;
	state->was_empty = !qlen;
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

#if defined(LAW_DEPARTED) || defined(LAW_SEES_MARKS)
enum { IS_TCP = 1, IS_ECT = 2 };

/* Of a packet's IP header. */
static __always_inline int header(struct __sk_buff *ctx)
{
	__u8 bytes[10];
	int at = ctx->protocol == bpf_htons(ETH_P_IPV6) ? 6 : 9, found = 0;

	if (ctx->protocol != bpf_htons(ETH_P_IP) && at == 9)
		return 0;
	if (bpf_skb_load_bytes_relative(ctx, 0, bytes, sizeof(bytes), BPF_HDR_START_NET))
		return 0;
	if ((at == 9 ? bytes[9] : bytes[6]) == 6)
		found |= IS_TCP;
	if ((at == 9 ? bytes[1] : bytes[1] >> 4) & 3)
		found |= IS_ECT;
	return found;
}
#endif

SEC("tc")
int forebay(struct __sk_buff *ctx)
{
	__u32 zero = 0, *which = bpf_map_lookup_elem(&active, &zero);
	struct running *state = bpf_map_lookup_elem(&running, &zero);
	struct tally *count = bpf_map_lookup_elem(&tally, &zero);
	struct settings *site = which ? bpf_map_lookup_elem(&settings, which) : 0;
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	struct Qdisc *qdisc = skb->dev->qdisc;
	struct fb_packet packet = {.bytes = ctx->len, .segments = ctx->gso_segs};
	int verdict = FB_PASS;

	if (!site || !state || !count)
		return TC_ACT_UNSPEC;
	if (!packet.segments)
		packet.segments = 1;
	count->packets += packet.segments;
	count->bytes += packet.bytes;
	if (state->qdisc != (__u64)qdisc)
		state->qdisc = (__u64)qdisc;
	if (!state->started)
		start(state, site, bpf_ktime_get_ns());
#if defined(LAW_ARRIVAL) || defined(LAW_IDLE) || defined(LAW_DEPARTED)
	{
		__u64 now = bpf_ktime_get_ns(), sent;
		__u32 qlen = qdisc->q.qlen, backlog = qdisc->qstats.backlog;
#ifdef LAW_OVERFLOW
		__u32 full = qdisc->qstats.drops;
#endif
		struct fb_queue queue = {.now_ns = now - state->start_ns};
#if defined(LAW_DEPARTED) || defined(LAW_SEES_MARKS)
		int is = header(ctx);

		packet.marks = site->ecn && is & IS_ECT;
#endif
		packet.random = bpf_get_prandom_u32();
		law_queue(site, &queue, qlen, backlog);
		bpf_spin_lock(&state->lock);
		/* The link is idle from when it has sent what came last, unless that was dropped. */
		sent = state->busy_until_ns > state->last_ns ? state->busy_until_ns : state->last_ns;
		if (!qlen && now > sent)
			queue.idle_ns = now - sent;
		state->last_ns = now;
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
		state->was_empty |= !qlen;
		if (!(is & IS_TCP))
			state->other_bytes += packet.bytes;
#endif
		verdict = law_arrival(&site->law, &state->law, &queue, &packet);
		if (!verdict) {
			sent = qlen || state->busy_until_ns < now ? now : state->busy_until_ns;
			state->busy_until_ns = sent + fb_times(backlog + packet.bytes, site->ns_per_byte);
		}
		bpf_spin_unlock(&state->lock);
	}
#else
	/* A probability that only the clock moves. */
	if (state->law.p) {
		packet.random = bpf_get_prandom_u32();
		verdict = law_arrival(&site->law, &state->law, 0, &packet);
	}
#endif
	if (verdict == FB_PASS)
		return TC_ACT_UNSPEC;
	if (verdict == FB_MARK && site->ecn && bpf_skb_ecn_set_ce(ctx)) {
		count->marks++;
		count->marked_packets += packet.segments;
		return TC_ACT_UNSPEC;
	}
	count->drops++;
	count->dropped_packets += packet.segments;
	return TC_ACT_SHOT;
}
