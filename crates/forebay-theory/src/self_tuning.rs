//! The stability of self-tuning laws (staqm theorem 1).

/// Returns the time constant of the load estimate, 1/K_rc, below which self-tuning PI is unstable
/// (staqm theorem 1, figure 11): at which s³ + s²/R + (g/R²)(s + K_rc)e^{−sR} has a root s = jx/R,
/// with g = β√(β²+1).
///
/// Its real and imaginary parts give g = x·sin x + x²·cos x and K_rc·R = (x²·cos x − x³·sin x)/g.
/// The result is infinite if no time constant is long enough because PI's own loop is unstable.
///
/// In staqm eq. (5) a new gain also rescales the integral. PI's difference form does not, so near
/// equilibrium the estimate has no effect on the loop, and the bound is conservative.
pub fn critical_load_time_s(beta: f64, rtt_s: f64) -> f64 {
    let g = beta * beta.hypot(1.0);
    let gain = |x: f64| x * x.sin() + x * x * x.cos();
    // `gain` rises from 0 up to x = 1.077.
    let (mut low, mut high) = (0.0, 1.0768);
    if gain(high) < g {
        return f64::INFINITY;
    }
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if gain(middle) < g {
            low = middle;
        } else {
            high = middle;
        }
    }
    let x = high;
    let k_rc = (x * x * x.cos() - x.powi(3) * x.sin()) / g;
    if k_rc > 0.0 {
        rtt_s / k_rc
    } else {
        f64::INFINITY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_critical_time_constants_are_those_of_figure_11() {
        let close = |actual: f64, expected: f64| {
            assert!(
                (actual / expected - 1.0).abs() < 0.01,
                "{actual} {expected}"
            )
        };
        close(critical_load_time_s(0.5, 0.1), 0.325);
        close(critical_load_time_s(0.5, 0.25), 0.81);
        // The bound diverges at β = 0.8603, where PI's own loop becomes unstable.
        assert!(critical_load_time_s(0.855, 0.1) > 5.0);
        assert!(critical_load_time_s(0.861, 0.1).is_infinite());
    }

    /// With s = jx/R, R³·(s³ + s²/R + (g/R²)(s + K_rc)e^{−sR}) is
    /// −jx³ − x² + g·(jx + K_rc·R)(cos x − j·sin x).
    #[test]
    fn at_the_critical_time_constant_the_loop_has_a_root_on_the_imaginary_axis() {
        for (beta, rtt_s) in [
            (0.1_f64, 0.1),
            (0.3, 1.0),
            (0.5, 0.03),
            (0.7, 0.25),
            (0.85, 0.1),
        ] {
            let g = beta * (beta * beta + 1.0).sqrt();
            let k = rtt_s / critical_load_time_s(beta, rtt_s);
            let residual = |x: f64| {
                let (sin, cos) = x.sin_cos();
                let re = -x * x + g * (k * cos + x * sin);
                let im = -x.powi(3) + g * (x * cos - k * sin);
                re.hypot(im) / (x * x)
            };
            let smallest = (1..=20_000)
                .map(|i| residual(f64::from(i) * 5e-5))
                .fold(f64::INFINITY, f64::min);
            assert!(smallest < 1e-3, "beta = {beta}: {smallest}");
        }
    }

    #[test]
    fn the_critical_time_constant_is_proportional_to_the_round_trip_time() {
        let (short, long) = (
            critical_load_time_s(0.5, 0.1),
            critical_load_time_s(0.5, 0.3),
        );
        assert!((long / short - 3.0).abs() < 1e-12);
        assert!(critical_load_time_s(2.0, 0.1).is_infinite());
    }
}
