//! Prefetching: a hint to the processor that a value will be read soon.

/// Starts to load every cache line of `value` into the cache, without waiting. Does nothing on
/// processors other than x86-64.
#[inline]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..std::mem::size_of::<T>().div_ceil(64) {
        let address = std::ptr::from_ref(value)
            .cast::<i8>()
            .wrapping_add(64 * line);
        // SAFETY: a prefetch reads nothing and cannot fault at any address.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
