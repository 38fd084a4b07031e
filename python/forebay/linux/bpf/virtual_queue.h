/* The virtual queue of AVQ: the same arrivals, served at a virtual capacity below the link's. */
#ifndef FOREBAY_VIRTUAL_QUEUE_H
#define FOREBAY_VIRTUAL_QUEUE_H

#define VIRTUAL_QUEUE_STATE(FIELD) FIELD(backlog) FIELD(capacity) FIELD(served_ns)

struct virtual_queue {
	VIRTUAL_QUEUE_STATE(FB_FIELD)
};

/* A length, at most 2^38 bytes. */
static __always_inline __s64 virtual_served(__u64 rate, __u64 ns)
{
	return fb_mul(rate, ns, FB_RATE - FB_LENGTH);
}

static __always_inline int virtual_queue_overflows(struct virtual_queue *queue, __s64 buffer,
						   __u64 now_ns, __u64 bytes)
{
	__s64 with;

	queue->backlog -= virtual_served(queue->capacity, now_ns - queue->served_ns);
	queue->served_ns = now_ns;
	if (queue->backlog < 0)
		queue->backlog = 0;
	with = queue->backlog + ((__s64)bytes << FB_LENGTH);
	if (with > buffer)
		return 1;
	queue->backlog = with;
	return 0;
}

/* Moves C̃ by a rate, within [0, C]. */
static __always_inline void virtual_queue_adjust(struct virtual_queue *queue, __s64 change, __s64 rate)
{
	queue->capacity = fb_clamp(queue->capacity + fb_clamp(change, -FB_MAX, FB_MAX), 0, rate);
}

#endif
