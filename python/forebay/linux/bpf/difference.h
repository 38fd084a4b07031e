/* The difference equation of P, PI, PD and PID: p += a·e_k − b·e_{k−1} + c·e_{k−2} (equation 6 of the PI-PD
 * paper, Ryu et al.), limited to [0, 1], so that the integral cannot wind up. */
#ifndef FOREBAY_DIFFERENCE_H
#define FOREBAY_DIFFERENCE_H

#define DIFFERENCE_CONFIG(FIELD) FIELD(a) FIELD(b) FIELD(c)
#define DIFFERENCE_STATE(FIELD) FIELD(p) FIELD(error_1) FIELD(error_2)

struct difference_state {
	DIFFERENCE_STATE(FB_FIELD)
};

/* By a change in units of 2^-60, held to two. */
static __always_inline void difference_move(struct difference_state *state, __s64 change, __s64 error)
{
	state->p = fb_clamp(state->p + fb_clamp(change, -2 * FB_ONE, 2 * FB_ONE), 0, FB_ONE);
	state->error_2 = state->error_1;
	state->error_1 = error;
}

/* A gain times an error is in units of 2^-52: a PD's products are many times their sum, and must not
 * saturate (at 2^10) before they cancel out. */
#define FB_PRODUCT 52

static __always_inline void difference_change(struct difference_state *state, __s64 change, __s64 error)
{
	const __s64 two = 2 * FB_ONE >> (FB_P - FB_PRODUCT);

	difference_move(state, fb_clamp(change, -two, two) * (1 << (FB_P - FB_PRODUCT)), error);
}

/* a, b and c are factors from a length to such a product. */
static __always_inline void difference_step(struct difference_state *state, __u64 a, __u64 b, __u64 c,
					    __s64 error)
{
	__s64 change = fb_clamp(fb_times(error, a) - fb_times(state->error_1, b), -FB_MAX, FB_MAX);

	if (c)
		change += fb_times(state->error_2, c);
	difference_change(state, change, error);
}

#endif
