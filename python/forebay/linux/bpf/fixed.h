/* Fixed-point numbers of the laws: 64-bit integers, no division of signed numbers, no floats.
 *
 * A length of the queue, below 2^32 bytes, is in units of 2^-24 byte. A probability is in units of 2^-60. A rate is in bytes
 * per nanosecond, in units of 2^-56. A factor is a number with a mantissa of its own, see fb_times.
 */
#ifndef FOREBAY_FIXED_H
#define FOREBAY_FIXED_H

#include <linux/types.h>

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

#define FB_LENGTH 24 /* bits behind the point of a length */
#define FB_P 60      /* … of a probability */
#define FB_RATE 56   /* … of a rate */
#define FB_ONE (1LL << FB_P)
#define FB_MAX (1LL << 62) /* value of a saturated number; the sum of two does not overflow */

static __always_inline __u64 fb_min(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

static __always_inline __u64 fb_size(__s64 x)
{
	return x < 0 ? -(__u64)x : (__u64)x;
}

static __always_inline __s64 fb_clamp(__s64 x, __s64 low, __s64 high)
{
	return x < low ? low : x > high ? high : x;
}

/* x·y/2^shift rounded down, FB_MAX where it is more; shift < 128. The verifier knows no product of
 * 128 bits, so it is made of four. */
static __always_inline __u64 fb_mul(__u64 x, __u64 y, __u32 shift)
{
	__u64 x0 = (__u32)x, x1 = x >> 32, y0 = (__u32)y, y1 = y >> 32;
	__u64 p00 = x0 * y0, p01 = x0 * y1, p10 = x1 * y0;
	__u64 middle = (p00 >> 32) + (__u32)p01 + (__u32)p10;
	__u64 low = (middle << 32) | (__u32)p00;
	__u64 high = x1 * y1 + (p01 >> 32) + (p10 >> 32) + (middle >> 32);

	if (shift >= 64)
		return fb_min(high >> ((shift - 64) & 63), FB_MAX);
	if (high >> shift)
		return FB_MAX;
	if (shift)
		low = (high << (64 - shift)) | (low >> shift);
	return fb_min(low, FB_MAX);
}

/* x times a probability: what cannot saturate needs no branch, of which each doubles the paths that the
 * verifier follows. */
static __always_inline __u64 fb_part(__u64 x, __u64 p)
{
	__u64 x0 = (__u32)x, x1 = x >> 32, p0 = (__u32)p, p1 = p >> 32;
	__u64 p00 = x0 * p0, p01 = x0 * p1, p10 = x1 * p0;
	__u64 middle = (p00 >> 32) + (__u32)p01 + (__u32)p10;

	return (x1 * p1 + (p01 >> 32) + (p10 >> 32) + (middle >> 32)) << (64 - FB_P) |
	       (__u32)middle >> (FB_P - 32);
}

/* x times a factor: bits 0-47 its mantissa, 48-54 the shift to the right, 63 its sign. */
static __always_inline __s64 fb_times(__s64 x, __u64 factor)
{
	int negative = (x < 0) != (factor >> 63);
	__s64 product = fb_mul(fb_size(x), factor & ((1ULL << 48) - 1), (factor >> 48) & 127);

	return negative ? -product : product;
}

/* (x + weight·(to − x)) with a weight in units of 2^-60. */
static __always_inline __s64 fb_toward(__s64 x, __s64 to, __s64 weight)
{
	return to < x ? x - (__s64)fb_part(x - to, weight)
		      : x + (__s64)fb_part(to - x, weight);
}

/* base^n for a base in [0, 1] in units of 2^-60. */
static __always_inline __s64 fb_power(__s64 base, __u64 n)
{
	__s64 power = FB_ONE;
	int i;

	for (i = 0; i < 64 && n && power; i++, n >>= 1) {
		if (n & 1)
			power = fb_part(power, base);
		base = fb_part(base, base);
	}
	return power;
}

/* The square root of a probability, in units of 2^-30: digit by digit, without a branch, and without a
 * mask of all ones or none, on which newer verifiers (6.18) follow both. x < 2^63. */
static __always_inline __u64 fb_sqrt(__u64 x)
{
	__u64 root = 0, bit = 1ULL << 62, taken;
	int i;

	for (i = 0; i < 32; i++, bit >>= 2) {
		/* One where x ≥ root + bit. */
		taken = (x - root - bit) >> 63 ^ 1;
		__asm__ volatile("" : "+r"(taken));
		x -= (root + bit) * taken;
		root = (root >> 1) + bit * taken;
	}
	return root;
}

/* 1 − e^−x for x in [0, 1], in units of 2^-60: x·(1 − x/2·(1 − x/3·(1 − …))), at 1/2 2e-5 too small. */
static __always_inline __s64 fb_decay(__s64 x)
{
	__s64 sum = FB_ONE;
	__u64 i;

	for (i = 6; i > 1; i--)
		sum = FB_ONE - (__s64)(fb_part(x, sum) / i);
	return fb_part(x, sum);
}

/* bytes/ns as a rate; ns > 0. */
static __always_inline __u64 fb_rate(__u64 bytes, __u64 ns)
{
	return bytes < 1 << 20 ? ((bytes << 43) / ns) << 13 : fb_min(((bytes << 24) / ns) << 32, FB_MAX);
}

#endif
