/* A law before a shaper: a classifier at the egress of a device, which reads the backlog of the device's
 * root qdisc and drops or marks. It writes to nothing but its own maps and the packet's ECN field. */
#define FRONT_HOLDS 1
#include "front.h"

extern void *bpf_cast_to_kern_ctx(void *) __ksym;

static __always_inline int header(struct __sk_buff *ctx)
{
	int is = 0;
#ifdef FRONT_SEES_HEADER
	__u8 bytes[10];

	if ((ctx->protocol == bpf_htons(ETH_P_IP) || ctx->protocol == bpf_htons(ETH_P_IPV6)) &&
	    !bpf_skb_load_bytes_relative(ctx, 0, bytes, sizeof(bytes), BPF_HDR_START_NET))
		is = protocol(bytes, ctx->protocol);
#endif
	return is;
}

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
	__u64 now, backlog;
	int verdict;

	if (!site || !state || !count)
		return TC_ACT_UNSPEC;
	if (!packet.segments)
		packet.segments = 1;
	count->packets += packet.segments;
	count->bytes += packet.bytes;
	now = bpf_ktime_get_ns();
	backlog = qdisc->qstats.backlog;
	if (!state->started)
		start(state, site, now);
	run_clock(state, site, qdisc, now);
	verdict = arrives(state, site, count, qdisc, &packet, header(ctx), now);
	if (verdict == FB_MARK && site->ecn && bpf_skb_ecn_set_ce(ctx)) {
		count->marks++;
		count->marked_packets += packet.segments;
	} else if (verdict != FB_PASS) {
		has_arrived(state, now, backlog);
		count->drops++;
		count->dropped_packets += packet.segments;
		return TC_ACT_SHOT;
	}
	has_arrived(state, now, backlog + packet.bytes);
	return TC_ACT_UNSPEC;
}
