//! The stability of a law that tunes itself (staqm theorem 1).

/// 1/K_rc below which a self-tuning PI, as the paper writes it, is unstable (staqm theorem 1,
/// figure 11):
/// where s³ + s²/R + (g/R²)(s + K_rc)e^{−sR} has a root s = jx/R, with g = β√(β²+1).
///
/// Its two parts are g = x·sin x + x²·cos x and K_rc·R = (x²·cos x − x³·sin x)/g. Infinite where
/// no time constant is long enough, as PI's own loop is unstable.
///
/// The paper's (5) scales the whole integral with a new gain. PI's difference form leaves
/// the integral alone, so near equilibrium its estimate does not feed back at all, and the bound
/// is on the safe side.
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
    fn the_critical_time_constants_are_figure_11s() {
        let close = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 0.01, "{got} {want}");
        close(critical_load_time_s(0.5, 0.1), 0.325);
        close(critical_load_time_s(0.5, 0.25), 0.81);
        // It blows up at β = 0.8603, where PI itself is at the edge.
        assert!(critical_load_time_s(0.855, 0.1) > 5.0);
        assert!(critical_load_time_s(0.861, 0.1).is_infinite());
    }
}
