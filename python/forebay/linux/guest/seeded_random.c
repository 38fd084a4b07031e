	/*
	 * With FOREBAY_SEED in its environment, a guest's random bytes come from
	 * that number alone: SplitMix64 (Steele, Lea and Flood, 2014).
	 */
	static unsigned long long forebay_state;
	static int forebay_seeded;

	if (!forebay_seeded) {
		const char *seed = getenv("FOREBAY_SEED");

		forebay_seeded = seed ? 1 : -1;
		if (seed)
			forebay_state = strtoull(seed, NULL, 10);
	}
	if (forebay_seeded > 0) {
		unsigned char *out = buf;
		size_t i;

		for (i = 0; i < len; i++) {
			unsigned long long z = forebay_state += 0x9e3779b97f4a7c15ull;

			z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
			z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
			out[i] = (z ^ (z >> 31)) >> 56;
		}
		return len;
	}
