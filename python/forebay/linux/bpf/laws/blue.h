/* BLUE of Feng, Shin, Kandlur and Saha: crates/forebay-aqm/src/laws/blue.rs. */
#define LAW_CONFIG(FIELD) FIELD(increment) FIELD(decrement) FIELD(freeze_ns)
#define LAW_STATE(FIELD) FIELD(p) FIELD(changed) FIELD(last_change_ns)
LAW_STRUCTS

static __always_inline void blue_change(const struct law_config *config, struct law_state *state,
					__u64 now_ns, __s64 by)
{
	if (state->changed && (__s64)now_ns - state->last_change_ns <= config->freeze_ns)
		return;
	state->p = fb_clamp(state->p + by, 0, FB_ONE);
	state->last_change_ns = now_ns;
	state->changed = 1;
}

#define LAW_TIMES
#define LAW_OVERFLOW
static __always_inline void law_overflow(const struct law_config *config, struct law_state *state,
					 __u64 now_ns)
{
	blue_change(config, state, now_ns, config->increment);
}

#define LAW_IDLE
static __always_inline void law_idle(const struct law_config *config, struct law_state *state,
				     __u64 now_ns)
{
	blue_change(config, state, now_ns, -config->decrement);
}
