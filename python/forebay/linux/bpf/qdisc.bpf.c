/* A law in a qdisc of its own (struct_ops, Linux 6.16 and later): the root of a device, which holds the
 * packets and sends them at a rate. It can drop; the kernel lets no qdisc of BPF write to a packet, so it
 * cannot mark. */
#define FRONT_HOLDS 0
/* Not every header has these two; the kernel knows them by name and size. */
#define bpf_list_head header_list_head
#define bpf_list_node header_list_node
#include "front.h"
#undef bpf_list_head
#undef bpf_list_node
#include <bpf/bpf_tracing.h>

struct bpf_list_head {
	__u64 opaque[2];
} __attribute__((aligned(8)));
struct bpf_list_node {
	__u64 opaque[3];
} __attribute__((aligned(8)));

/* After a late wake-up so much is sent at once, that the rate is kept. */
#define CREDIT_NS 1000000
#define PART_BITS 16 /* of busy_until_part */
#define NET_XMIT_SUCCESS 0
#define NET_XMIT_DROP 1
#define EBUSY 16

struct nlattr;
struct netlink_ext_ack;
struct bpf_sk_buff_ptr {
	struct sk_buff *skb;
};
struct Qdisc_ops {
	int (*enqueue)(struct sk_buff *, struct Qdisc *, struct sk_buff **);
	struct sk_buff *(*dequeue)(struct Qdisc *);
	int (*init)(struct Qdisc *, struct nlattr *, struct netlink_ext_ack *);
	void (*reset)(struct Qdisc *);
	void (*destroy)(struct Qdisc *);
	char id[16];
};

extern void *bpf_obj_new_impl(__u64, void *) __ksym;
extern void bpf_obj_drop_impl(void *, void *) __ksym;
extern int bpf_list_push_back_impl(struct bpf_list_head *, struct bpf_list_node *, void *, __u64) __ksym;
extern struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *) __ksym;
extern void bpf_qdisc_skb_drop(struct sk_buff *, struct bpf_sk_buff_ptr *) __ksym;
extern void bpf_kfree_skb(struct sk_buff *) __ksym;
extern void bpf_qdisc_watchdog_schedule(struct Qdisc *, __u64, __u64) __ksym;
extern void bpf_qdisc_bstats_update(struct Qdisc *, const struct sk_buff *) __ksym;
extern int bpf_dynptr_from_skb(struct sk_buff *, __u64, struct bpf_dynptr *) __ksym;

#define KPTR __attribute__((btf_type_tag("kptr")))
#define CONTAINS(type, node) __attribute__((btf_decl_tag("contains:" #type ":" #node)))

struct waiting {
	struct sk_buff KPTR *skb;
	struct bpf_list_node node;
};

struct line {
	struct bpf_spin_lock lock;
	struct bpf_list_head packets CONTAINS(waiting, node);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct line);
} line SEC(".maps");

static __always_inline struct settings *site_now(void)
{
	__u32 zero = 0, *which = bpf_map_lookup_elem(&active, &zero);

	return which ? bpf_map_lookup_elem(&settings, which) : 0;
}

static __always_inline __u32 length(const struct sk_buff *skb)
{
	return ((struct qdisc_skb_cb *)skb->cb)->pkt_len;
}

static __always_inline int header(struct sk_buff *skb)
{
	int is = 0;
#ifdef FRONT_SEES_HEADER
	struct bpf_dynptr all;
	__u8 bytes[10];
	__u32 at = skb->network_header - (__u32)((__u64)skb->data - (__u64)skb->head);

	if ((skb->protocol == bpf_htons(ETH_P_IP) || skb->protocol == bpf_htons(ETH_P_IPV6)) &&
	    !bpf_dynptr_from_skb(skb, 0, &all) &&
	    !bpf_dynptr_read(bytes, sizeof(bytes), &all, at, 0))
		is = protocol(bytes, skb->protocol);
#endif
	return is;
}

/* The packet that came first, or none. */
static __always_inline struct sk_buff *take(struct line *from)
{
	struct bpf_list_node *node;
	struct waiting *first;
	struct sk_buff *skb;

	bpf_spin_lock(&from->lock);
	node = bpf_list_pop_front(&from->packets);
	bpf_spin_unlock(&from->lock);
	if (!node)
		return 0;
	first = container_of(node, struct waiting, node);
	skb = bpf_kptr_xchg(&first->skb, 0);
	bpf_obj_drop_impl(first, 0);
	return skb;
}

SEC("struct_ops/enqueue")
int BPF_PROG(enqueue, struct sk_buff *skb, struct Qdisc *qdisc, struct bpf_sk_buff_ptr *to_free)
{
	__u32 zero = 0, bytes = length(skb);
	struct running *state = bpf_map_lookup_elem(&running, &zero);
	struct tally *count = bpf_map_lookup_elem(&tally, &zero);
	struct line *to = bpf_map_lookup_elem(&line, &zero);
	struct settings *site = site_now();
	struct skb_shared_info *shared;
	struct fb_packet packet = {.bytes = bytes};
	struct waiting *last;
	__u64 now;
	int verdict;

	if (!site || !state || !count || !to)
		goto drop;
	shared = bpf_rdonly_cast(skb->head + skb->end, bpf_core_type_id_kernel(struct skb_shared_info));
	packet.segments = shared->gso_segs ? shared->gso_segs : 1;
	count->packets += packet.segments;
	count->bytes += bytes;
	now = bpf_ktime_get_ns();
	if (!state->started)
		start(state, site, now);
	run_clock(state, site, qdisc, now);
	verdict = arrives(state, site, count, qdisc, &packet, header(skb), now);
	has_arrived(state, now, qdisc->qstats.backlog);
	if (verdict != FB_PASS) {
		count->drops++;
		count->dropped_packets += packet.segments;
		goto drop;
	}
	if (qdisc->qstats.backlog + bytes > site->buffer_bytes) {
		qdisc->qstats.drops++;
		goto drop;
	}
	last = bpf_obj_new_impl(bpf_core_type_id_local(struct waiting), 0);
	if (!last) {
		qdisc->qstats.drops++;
		goto drop;
	}
	if (!qdisc->q.qlen && state->busy_until_ns < now)
		state->busy_until_ns = now;
	qdisc->q.qlen++;
	qdisc->qstats.backlog += bytes;
	state->last_backlog = qdisc->qstats.backlog;
	skb = bpf_kptr_xchg(&last->skb, skb);
	if (skb)
		bpf_qdisc_skb_drop(skb, to_free);
	bpf_spin_lock(&to->lock);
	bpf_list_push_back_impl(&to->packets, &last->node, 0, 0);
	bpf_spin_unlock(&to->lock);
	return NET_XMIT_SUCCESS;
drop:
	bpf_qdisc_skb_drop(skb, to_free);
	return NET_XMIT_DROP;
}

SEC("struct_ops/dequeue")
struct sk_buff *BPF_PROG(dequeue, struct Qdisc *qdisc)
{
	__u32 zero = 0;
	struct running *state = bpf_map_lookup_elem(&running, &zero);
	struct line *from = bpf_map_lookup_elem(&line, &zero);
	struct settings *site = site_now();
	__u64 now, part, late;
	struct sk_buff *skb;

	if (!site || !state || !from || !qdisc->q.qlen)
		return 0;
	now = bpf_ktime_get_ns();
	if (now < state->busy_until_ns) {
		bpf_qdisc_watchdog_schedule(qdisc, state->busy_until_ns, 0);
		return 0;
	}
	skb = take(from);
	if (!skb)
		return 0;
	late = now - state->busy_until_ns;
	if (late > CREDIT_NS)
		state->busy_until_ns = now - CREDIT_NS;
	part = state->busy_until_part +
	       fb_times((__u64)length(skb) << PART_BITS, site->ns_per_byte);
	state->busy_until_ns += part >> PART_BITS;
	state->busy_until_part = part & ((1 << PART_BITS) - 1);
	qdisc->q.qlen--;
	qdisc->qstats.backlog -= length(skb);
	bpf_qdisc_bstats_update(qdisc, skb);
	return skb;
}

SEC("struct_ops/init")
int BPF_PROG(init, struct Qdisc *qdisc, struct nlattr *options, struct netlink_ext_ack *why)
{
	__u32 zero = 0;
	struct running *state = bpf_map_lookup_elem(&running, &zero);
	struct settings *site = site_now();

	/* One device: the maps are its. */
	if (!site || !state || qdisc->dev_queue->dev->ifindex != site->ifindex)
		return -EBUSY;
	return 0;
}

static long drop_first(__u32 number, void *nothing)
{
	__u32 zero = 0;
	struct line *from = bpf_map_lookup_elem(&line, &zero);
	struct sk_buff *skb = from ? take(from) : 0;

	if (!skb)
		return 1;
	bpf_kfree_skb(skb);
	return 0;
}

SEC("struct_ops/reset")
void BPF_PROG(reset, struct Qdisc *qdisc)
{
	bpf_loop(1 << 23, drop_first, 0, 0);
	qdisc->q.qlen = 0;
	qdisc->qstats.backlog = 0;
}

SEC("struct_ops/destroy")
void BPF_PROG(destroy, struct Qdisc *qdisc)
{
}

SEC(".struct_ops")
struct Qdisc_ops FOREBAY_QDISC = {
	.enqueue = (void *)enqueue,
	.dequeue = (void *)dequeue,
	.init = (void *)init,
	.reset = (void *)reset,
	.destroy = (void *)destroy,
	.id = FB_HEADER(FOREBAY_QDISC),
};
