//! Linear models and design rules, compared with the equations of the papers. Each equation is
//! written here a second time, from the paper. The network and the parameters are such that no
//! factor is one and no two factors are equal, so that a wrong operator changes the result.

#[path = "common/complex.rs"]
mod complex;

use complex::{average, delayed, hold, pid, Complex, J};
use forebay_aqm::laws::find;
use forebay_theory::design::{Design, DesignRequest};
use forebay_theory::linear::{LoopFilter, OperatingPoint};
use forebay_units::{Bytes, Packets, Rate, SetPoint, Site, Span, Value};

/// N, R in seconds and C in packets/s.
const FLOWS: f64 = 37.0;
const RTT_S: f64 = 0.17;
const CAPACITY: f64 = 2900.0;
/// The size of the buffer, and the set-point, in packets.
const BUFFER: f64 = 910.0;
const TARGET: f64 = 230.0;
/// The signal probability that the flows of a design need, which are not Reno flows.
const NEEDED: f64 = 0.0163;

/// Returns a link of 2900 packets of 700 bytes per second.
fn site() -> Site {
    Site {
        rate: Rate::from_bps(16_240_000),
        buffer_pkts: BUFFER,
        packet: Bytes(700),
    }
}

fn point() -> OperatingPoint {
    OperatingPoint::of_flows(FLOWS, RTT_S, CAPACITY)
}

/// Returns the probability 2N²/(RC)² of these flows.
fn probability(flows: f64) -> f64 {
    2.0 * (flows / (RTT_S * CAPACITY)).powi(2)
}

/// Returns the poles p_1 = 2N/(R²C) and p_2 = 1/R of the plant, and its gain K = C²/(2N) (pi-pd eq.
/// 1, whose print lacks a factor).
fn plant(flows: f64) -> (f64, f64, f64) {
    (
        2.0 * flows / (RTT_S * RTT_S * CAPACITY),
        1.0 / RTT_S,
        CAPACITY * CAPACITY / (2.0 * flows),
    )
}

/// Returns K_P and K_I of PI for a responsiveness β (staqm section III.A).
fn pi_rule(beta: f64) -> (f64, f64) {
    let rc = RTT_S * CAPACITY;
    let k_p = 2.0 * beta * (beta * beta + 1.0).sqrt() * FLOWS / (rc * rc);
    (k_p, 2.0 * FLOWS / (RTT_S * rc) * k_p)
}

/// Returns values with these names; a number, or a text with a unit.
fn values(settings: &[(&str, &str)]) -> Vec<(String, Value)> {
    let value = |text: &str| match (text, text.parse()) {
        ("true" | "false", _) => Value::Flag(text == "true"),
        (_, Ok(number)) => Value::Number(number),
        (_, Err(_)) => Value::Text(text.to_owned()),
    };
    settings
        .iter()
        .map(|(name, text)| ((*name).to_owned(), value(text)))
        .collect()
}

fn assert_close(what: &str, actual: f64, expected: f64, tolerance: f64) {
    let error = (actual / expected - 1.0).abs();
    assert!(error < tolerance, "{what}: {actual}, expected {expected}");
}

/// Returns the linear model of a law with these settings for this many flows.
fn model(law: &str, settings: &[(&str, &str)], flows: f64) -> LoopFilter {
    let law = find(law).unwrap().read(&values(settings)).unwrap();
    let point = OperatingPoint::of_flows(flows, RTT_S, CAPACITY);
    law.linear(&point, &site()).unwrap().expect("a model")
}

/// Asserts that a model has its equilibrium at `queue_pkts`, and this response at two frequencies.
fn assert_responds(
    what: &str,
    model: &LoopFilter,
    queue_pkts: f64,
    expected: impl Fn(f64) -> Complex,
) {
    assert_close(what, model.queue_pkts, queue_pkts, 1e-9);
    for omega in [0.3, 7.0] {
        let (re, im) = model.response(omega);
        let expected = expected(omega);
        let error = (Complex(re, im) - expected).size() / expected.size();
        assert!(
            error < 1e-7,
            "{what} at {omega} rad/s: {re} {im:+}j, expected {expected:?}"
        );
    }
}

/// RED's slope max_p/(max_th − min_th) of the average is followed by 2/3 of a signal with `wait`,
/// and by two signals without (uniform spacings of mean 1.5/p and 0.5/p).
#[test]
fn red_is_an_average_and_a_slope() {
    let thresholds = [("min_th", "30p"), ("max_th", "180p"), ("w_q", "0.013")];
    let p = probability(FLOWS);
    for (wait, rate) in [("true", 2.0 / 3.0), ("false", 2.0)] {
        let settings = [
            &thresholds[..],
            &[("max_p", "0.07"), ("wait", wait), ("gentle", "false")],
        ];
        let slope = 0.07 / 150.0;
        assert_responds(
            "red",
            &model("red", &settings.concat(), FLOWS),
            30.0 + p / rate / slope,
            |omega| average(omega, 0.013, 1.0 / CAPACITY) * (rate * slope),
        );
        // Above max_th, gentle RED rises from max_p to one at twice max_th.
        let settings = [
            &thresholds[..],
            &[("max_p", "0.004"), ("wait", wait), ("gentle", "true")],
        ];
        let slope = 0.996 / 180.0;
        assert_responds(
            "gentle red",
            &model("red", &settings.concat(), FLOWS),
            180.0 + (p / rate - 0.004) / slope,
            |omega| average(omega, 0.013, 1.0 / CAPACITY) * (rate * slope),
        );
    }
}

/// Adaptive RED keeps its initial max_p in the middle fifth of the range, and otherwise has its
/// equilibrium at the nearer edge of it, at 40 or 60 %.
#[test]
fn adaptive_red_is_red_in_the_middle_fifth_of_its_range() {
    let p_b = 1.5 * probability(FLOWS);
    for (max_p, adapted) in [("0.033", 0.033), ("0.011", p_b / 0.6), ("0.12", p_b / 0.4)] {
        let settings = [
            ("min_th", "30p"),
            ("max_th", "180p"),
            ("w_q", "0.013"),
            ("max_p", max_p),
        ];
        let slope = adapted / 150.0;
        assert_responds(
            "ared",
            &model("ared", &settings, FLOWS),
            30.0 + p_b / slope,
            |omega| average(omega, 0.013, 1.0 / CAPACITY) * (2.0 / 3.0 * slope),
        );
    }
}

/// pd-red eq. (1) and (3): max_p += k_p·e/B + k_d·Δe/B, and RED with this max_p.
#[test]
fn pd_red_has_the_slope_of_red_and_the_path_through_max_p() {
    let settings = [
        ("target", "230p"),
        ("min_th", "41p"),
        ("max_th", "390p"),
        ("w_q", "0.017"),
        ("k_p", "0.0031"),
        ("k_d", "0.07"),
        ("interval", "13ms"),
    ];
    let (rate, p_b) = (2.0 / 3.0, 1.5 * probability(FLOWS));
    let share = (230.0 - 41.0) / (390.0 - 41.0);
    let expected = |omega: f64| {
        let z_1 = delayed(omega, 0.013);
        let one = Complex(1.0, 0.0);
        let controller = (Complex(0.0031, 0.0) / (one - z_1) + 0.07) * hold(omega, 0.013);
        let through_max_p = controller * (rate * share / BUFFER);
        (through_max_p + rate * p_b / (230.0 - 41.0)) * average(omega, 0.017, 1.0 / CAPACITY)
    };
    let controlled = model("pd-red", &settings, FLOWS);
    assert_responds("pd-red", &controlled, TARGET, expected);
    // p_b = 0.61 needs more than the 54 % of max_p = 1 at the target: max_p stays at one.
    let flows = 0.45 * RTT_S * CAPACITY;
    let p_b = 1.5 * 2.0 * 0.45 * 0.45;
    let saturated = model("pd-red", &settings, flows);
    assert_responds(
        "saturated pd-red",
        &saturated,
        41.0 + p_b * 349.0,
        |omega| average(omega, 0.017, 1.0 / CAPACITY) * (rate / 349.0),
    );
}

/// pi-pd eq. (2), (3) and (6).
#[test]
fn pi_and_pid_are_digital_controllers_of_the_queue() {
    let settings = [
        ("target", "230p"),
        ("a", "3.3e-5"),
        ("b", "3.1e-5"),
        ("interval", "9ms"),
    ];
    // a, b = K_P ± K_I·T/2.
    let gains = [3.2e-5, 2e-6 / 0.009, 0.0];
    assert_responds("pi", &model("pi", &settings, FLOWS), TARGET, |omega| {
        pid(omega, gains, 0.009)
    });
    let settings = [
        ("target", "230p"),
        ("k_p", "6.1e-5"),
        ("k_i", "3.7e-5"),
        ("k_d", "5.3e-6"),
        ("interval", "31ms"),
    ];
    assert_responds("pid", &model("pid", &settings, FLOWS), TARGET, |omega| {
        pid(omega, [6.1e-5, 3.7e-5, 5.3e-6], 0.031)
    });
}

/// pi-pd eq. (11): Δp = α·((e_k + e_{k−1})/2)/Q_ref.
#[test]
fn pi_pd_integrates_the_mean_of_two_errors() {
    let settings = [("target", "230p"), ("alpha", "7e-4"), ("interval", "43ms")];
    let one_side = model("pi-pd", &settings, FLOWS);
    assert!(one_side.one_sided);
    assert_responds("pi-pd", &one_side, TARGET, |omega| {
        let z_1 = delayed(omega, 0.043);
        let one = Complex(1.0, 0.0);
        (one + z_1) / (one - z_1) * (7e-4 / (2.0 * TARGET)) * hold(omega, 0.043)
    });
}

/// bigdeli eq. (3)–(5): PID control of (average − target)/buffer. Without an integral, the law
/// counts up from an empty queue, whose first step is limited: p·B = k_p·q + (k_d/T)·target.
#[test]
fn averaged_controllers_are_an_average_and_a_pid_controller() {
    let p = probability(FLOWS);
    for (law, gains, queue_pkts) in [
        ("p-avg", [0.12, 0.0, 0.0], p * BUFFER / 0.12),
        ("pi-avg", [0.031, 0.017, 0.0], TARGET),
        (
            "pd-avg",
            [0.21, 0.0, 3e-4],
            (p * BUFFER - 3e-4 / 0.023 * TARGET) / 0.21,
        ),
        ("pid-avg", [0.031, 0.017, 0.0013], TARGET),
    ] {
        let [k_p, k_i, k_d] = gains.map(|gain: f64| gain.to_string());
        let mut settings = vec![
            ("target", "230p"),
            ("w_q", "0.07"),
            ("interval", "23ms"),
            ("k_p", &k_p),
        ];
        settings.extend((gains[1] > 0.0).then_some(("k_i", &*k_i)));
        settings.extend((gains[2] > 0.0).then_some(("k_d", &*k_d)));
        let relative = gains.map(|gain| gain / BUFFER);
        for (at_samples, interval_s) in [("true", 0.023), ("false", 1.0 / CAPACITY)] {
            let mut settings = settings.clone();
            settings.push(("average_at_samples", at_samples));
            let model = model(law, &settings, FLOWS);
            assert_responds(law, &model, queue_pkts, |omega| {
                pid(omega, relative, 0.023) * average(omega, 0.07, interval_s)
            });
        }
    }
}

/// staqm eq. (3), with the gains for the load and the capacity of the network and the law's own
/// round-trip time.
#[test]
fn self_tuning_pi_has_the_gains_of_its_estimates() {
    let settings = [
        ("target", "230p"),
        ("beta", "0.37"),
        ("rtt", "210ms"),
        ("interval", "7ms"),
    ];
    // N/(RC) is measured, so that N/(R_0²C²) = θ_rc/(R_0·C) and 2N/(R_0²C) = 2θ_rc/R_0.
    let load = FLOWS / (RTT_S * CAPACITY);
    let k_p = 2.0 * 0.37 * (0.37_f64.powi(2) + 1.0).sqrt() * load / (0.21 * CAPACITY);
    let k_i = 2.0 * load / 0.21 * k_p;
    let model = model("stpi", &settings, FLOWS);
    assert_responds("stpi", &model, TARGET, |omega| {
        pid(omega, [k_p, k_i, 0.0], 0.007)
    });
}

/// RED's design for a load θ = N/(RC) (staqm section III.A and appendix D), with the crossover
/// below TCP's pole.
struct RedDesign {
    omega_g: f64,
    k_red: f64,
    l_red: f64,
    /// dL_red/dθ.
    l_red_slope: f64,
}

impl RedDesign {
    /// L_red = |jω_g + K|·(2N)²/(K·(RC)³) = (1 + tan²)^½·4θ²/(RC), because ω_g/K = tan(PM − ω_g·R).
    fn new(margin_degrees: f64, crossover: f64, load: f64, rtt_s: f64) -> RedDesign {
        let rc = rtt_s * CAPACITY;
        let omega_g = crossover * 2.0 * load / rtt_s;
        let angle = margin_degrees.to_radians() - omega_g * rtt_s;
        let k_red = omega_g / angle.tan();
        let l_red = (omega_g.powi(2) + k_red.powi(2)).sqrt() * (2.0 * load * rc).powi(2)
            / (k_red * rc.powi(3));
        // ln L_red = 2·ln θ − ln cos(PM − 2·crossover·θ) + const.
        let l_red_slope = l_red * (2.0 / load - 2.0 * crossover * angle.tan());
        RedDesign {
            omega_g,
            k_red,
            l_red,
            l_red_slope,
        }
    }

    /// Returns w_q = 1 − e^{−K/C}.
    fn w_q(&self) -> f64 {
        1.0 - (-self.k_red / CAPACITY).exp()
    }
}

/// staqm eq. (2) and (6): RED with the design for the estimates, and the loop through θ_rc.
///
/// p_b = L·x and, at each sample, θ += w·(h·p_b − θ) with h = d√(p/2)/dp. With g = x·dL/dθ,
/// δp_b = L·δx + g·δθ and δθ_k = (1 − w)·δθ_{k−1} + w·h·(L·δx_k + g·δθ_{k−1}). The few flows of
/// the second case have a load of 0.003.
#[test]
fn self_tuning_red_has_an_inner_loop_through_the_load() {
    for (flows, spacing, rate) in [(FLOWS, "true", 2.0 / 3.0), (1.479, "false", 2.0)] {
        let settings = [
            ("min_th", "13p"),
            ("max_th", "500p"),
            ("phase_margin", "71"),
            ("crossover", "0.23"),
            ("rtt", "210ms"),
            ("load_time", "3s"),
            ("interval", "7ms"),
            ("wait", spacing),
        ];
        let p_b = probability(flows) / rate;
        let load = (p_b / 2.0).sqrt();
        let red = RedDesign::new(71.0, 0.23, load, 0.21);
        let above_min = p_b / red.l_red;
        let w = 1.0 - (-0.007_f64 / 3.0).exp();
        let (g, h) = (above_min * red.l_red_slope, 1.0 / (4.0 * load));
        let model = model("stred", &settings, flows);
        assert_responds("stred", &model, 13.0 + above_min, |omega| {
            let pole = 1.0 - w + w * h * g;
            let inner = Complex(g * w * h * red.l_red, 0.0)
                / (Complex(1.0, 0.0) - delayed(omega, 0.007) * pole);
            (inner * hold(omega, 0.007) + red.l_red)
                * average(omega, red.w_q(), 1.0 / CAPACITY)
                * rate
        });
    }
}

/// p = 1 − φ^{−price}, and the price moves by γ·(α·(q − target) + Δq).
#[test]
fn rem_is_pi_control_of_the_price() {
    let settings = [
        ("target", "230p"),
        ("gamma", "0.0017"),
        ("alpha", "0.13"),
        ("phi", "1.19"),
        ("interval", "3ms"),
    ];
    let slope = (1.0 - probability(FLOWS)) * 1.19_f64.ln();
    assert_responds("rem", &model("rem", &settings, FLOWS), TARGET, |omega| {
        let integral = Complex(0.13, 0.0) / (Complex(1.0, 0.0) - delayed(omega, 0.003));
        (integral + 1.0) * hold(omega, 0.003) * (slope * 0.0017)
    });
}

/// Returns α/(1 − z⁻¹) + β, held, per packet at the link's rate, of a delay that is seen `age_s`
/// late.
fn delay_control(omega: f64, [alpha, beta]: [f64; 2], interval_s: f64, age_s: f64) -> Complex {
    let integral = Complex(alpha, 0.0) / (Complex(1.0, 0.0) - delayed(omega, interval_s));
    (integral + beta) * hold(omega, interval_s) / CAPACITY * delayed(omega, age_s)
}

/// RFC 8033 sections 4.2 and 5.4: the gains are halved for probabilities from 1 to 10 %. The sum of
/// the probabilities reaches 0.85 after 0.85/p + 1/2 packets, from which on each packet is
/// signalled with p: a signal in 1.85/p − 1/2 packets, counting the signalled one.
#[test]
fn pie_is_pi_control_of_the_delay_with_the_gains_at_its_probability() {
    let settings = [
        ("target", "21ms"),
        ("alpha", "0.14"),
        ("beta", "1.7"),
        ("interval", "11ms"),
    ];
    let target_pkts = 0.021 * CAPACITY;
    let signals = probability(FLOWS);
    // signals = p/(1.85 − p/2), whose slope is 1.85/(1.85 − p/2)².
    let p = 1.85 * signals / (1.0 + 0.5 * signals);
    assert!(0.01 < p && p < 0.1);
    let slope = 1.85 / (1.85 - 0.5 * p).powi(2);
    for (estimator, age_s, derandomise, slope) in [
        ("timestamp", 0.021, "true", slope),
        ("departure-rate", 0.0, "false", 1.0),
    ] {
        let settings = [
            &settings[..],
            &[("estimator", estimator), ("derandomise", derandomise)],
        ];
        let model = model("pie", &settings.concat(), FLOWS);
        assert_responds("pie", &model, target_pkts, |omega| {
            delay_control(omega, [0.14, 1.7], 0.011, age_s) * (0.5 * slope)
        });
    }
}

/// RFC 9332 appendix A.1: p' is the output of PI control of the delay, and p = p'².
#[test]
fn pi2_has_the_slope_of_the_square() {
    let settings = [
        ("target", "21ms"),
        ("alpha", "0.14"),
        ("beta", "1.7"),
        ("interval", "11ms"),
    ];
    let slope = 2.0 * probability(FLOWS).sqrt();
    for law in ["pi2", "dualpi2"] {
        let model = model(law, &settings, FLOWS);
        assert_responds(law, &model, 0.021 * CAPACITY, |omega| {
            delay_control(omega, [0.14, 1.7], 0.011, 0.021) * slope
        });
    }
}

/// Returns the design of a law with these settings and goals.
fn designed(
    law: &str,
    settings: &[(&str, &str)],
    goals: &[(&str, &str)],
    flows: f64,
    target: SetPoint,
) -> Design {
    let request = DesignRequest {
        point: OperatingPoint::of_flows(flows, RTT_S, CAPACITY),
        probability: NEEDED,
        marked: false,
        set_point: target,
        site: site(),
    };
    let law = find(law).unwrap().read(&values(settings)).unwrap();
    let theory = law.theory().expect("a theory");
    theory.design(&request, &values(goals)).unwrap().unwrap()
}

/// Returns a designed parameter as a number, in packets or seconds.
fn designed_number(value: &Value) -> f64 {
    match value {
        Value::Integer(number) => *number as f64,
        Value::Number(number) => *number,
        Value::Text(text) => match (SetPoint::parse(text), Span::parse(text)) {
            (Ok(SetPoint::Packets(packets)), _) => packets,
            (_, Ok(span)) => span.as_secs_f64(),
            _ => Packets::parse(text).expect("a quantity").0,
        },
        _ => panic!("{value:?} is not a number"),
    }
}

/// Asserts that the gains and the parameters of a design have these values, and that the lists are
/// complete. Parameters are rounded to ten digits, times to nanoseconds and thresholds to
/// hundredths of packets.
fn assert_designs(law: &str, design: &Design, gains: &[(&str, f64)], params: &[(&str, f64)]) {
    let names = |pairs: &[(&str, f64)]| -> Vec<String> {
        pairs.iter().map(|(name, _)| (*name).to_owned()).collect()
    };
    let designed: Vec<_> = design.gains.iter().map(|(name, _)| *name).collect();
    assert_eq!(designed, names(gains), "{law}");
    let designed: Vec<_> = design.params.iter().map(|(name, _)| *name).collect();
    assert_eq!(designed, names(params), "{law}");
    for ((name, actual), (_, expected)) in design.gains.iter().zip(gains) {
        assert_close(&format!("{law} {name}"), *actual, *expected, 1e-9);
    }
    for ((name, value), (_, expected)) in design.params.iter().zip(params) {
        let tolerance = match *name {
            "min_th" | "max_th" => 0.006 / expected,
            _ => 2e-7,
        };
        let actual = designed_number(value);
        assert_close(&format!("{law} {name}"), actual, *expected, tolerance);
    }
}

const PACKETS: SetPoint = SetPoint::Packets(TARGET);

/// staqm section III.A; with β = 0, Hollot's rule: the crossover at the zero, which is TCP's pole.
#[test]
fn the_design_of_pi_is_that_of_staqm() {
    let slow_beta = 2.0 * FLOWS / (RTT_S * CAPACITY);
    for (goal, beta) in [("0.37", 0.37), ("0", slow_beta)] {
        let (k_p, k_i) = pi_rule(beta);
        let (a, b) = (k_p + k_i * 0.0045, k_p - k_i * 0.0045);
        let design = designed(
            "pi",
            &[("interval", "9ms")],
            &[("beta", goal)],
            FLOWS,
            PACKETS,
        );
        let gains = [("a", a), ("b", b), ("k_p", k_p), ("k_i", k_i)];
        let params = [("target", TARGET), ("a", a), ("b", b), ("interval", 0.009)];
        assert_designs("pi", &design, &gains, &params);
        // REM has PI's gains at its operating point: γ·slope = b, γ(1 + α)·slope = a.
        let settings = [("interval", "9ms"), ("phi", "1.19")];
        let design = designed("rem", &settings, &[("beta", goal)], FLOWS, PACKETS);
        let gamma = b / ((1.0 - NEEDED) * 1.19_f64.ln());
        let gains = [
            ("gamma", gamma),
            ("alpha", a / b - 1.0),
            ("k_p", k_p),
            ("k_i", k_i),
        ];
        let params = [
            ("target", TARGET),
            ("gamma", gamma),
            ("alpha", a / b - 1.0),
            ("phi", 1.19),
            ("interval", 0.009),
        ];
        // α is the small difference of two gains.
        assert_close("rem alpha", design.gains[1].1, a / b - 1.0, 1e-9);
        assert_designs("rem", &design, &gains, &params);
    }
}

/// staqm section II prints a = 7.853e-5 and b = 7.827e-5 for 60 flows and a = 3.157e-4 and
/// b = 3.115e-4 for 240, on a link of 3750 packets/s with R = 0.2 + 175/3750 s.
#[test]
fn the_designs_of_pi_and_stpi_have_the_gains_that_staqm_prints() {
    let link = Site {
        rate: Rate::from_bps(15_000_000),
        buffer_pkts: 800.0,
        packet: Bytes(500),
    };
    for (flows, a, b) in [(60.0, 7.853e-5, 7.827e-5), (240.0, 3.157e-4, 3.115e-4)] {
        for law in ["pi", "stpi"] {
            let request = DesignRequest {
                point: OperatingPoint::of_flows(flows, 0.2 + 175.0 / 3750.0, 3750.0),
                probability: NEEDED,
                marked: false,
                set_point: SetPoint::Packets(175.0),
                site: link,
            };
            let law = find(law).unwrap().read(&[]).unwrap();
            let design = law.theory().unwrap().design(&request, &[]);
            let gains = design.unwrap().unwrap().gains;
            assert_close("a", gains[0].1, a, 2e-4);
            assert_close("b", gains[1].1, b, 2e-4);
        }
    }
}

/// staqm section III.A, and theorem 1: at the critical time constant
/// s³ + s²/R + (g/R²)(s + K_rc)e^{−sR} has a root jω, g = β√(β² + 1).
#[test]
fn the_design_of_stpi_is_that_of_staqm() {
    let settings = [
        ("beta", "0.37"),
        ("interval", "9ms"),
        ("load_time", "100ms"),
    ];
    let design = designed("stpi", &settings, &[], FLOWS, PACKETS);
    let (k_p, k_i) = pi_rule(0.37);
    let (a, b) = (k_p + k_i * 0.0045, k_p - k_i * 0.0045);
    let critical_s = design.gains.last().unwrap().1;
    let g = 0.37 * (0.37_f64.powi(2) + 1.0).sqrt();
    let residue = least(|omega| {
        let s = J * omega;
        let late = (s * -RTT_S).exp() * (g / RTT_S.powi(2));
        (s * s * s + s * s / RTT_S + (s + 1.0 / critical_s) * late).size() / omega.powi(3)
    });
    assert!(residue < 1e-4, "{residue}");
    let gains = [
        ("a", a),
        ("b", b),
        ("k_p", k_p),
        ("k_i", k_i),
        ("critical_load_time_s", critical_s),
    ];
    let params = [
        ("target", TARGET),
        ("beta", 0.37),
        ("rtt", RTT_S),
        ("flows", FLOWS),
        ("load_time", 3.0 * critical_s),
        ("interval", 0.009),
    ];
    assert_designs("stpi", &design, &gains, &params);
}

/// Returns the least value of a function over the frequencies from 0.01 to 100 rad/s.
fn least(value: impl Fn(f64) -> f64) -> f64 {
    let (mut centre, mut ratio) = (1.0_f64, 100.0_f64);
    for _ in 0..4 {
        let at = |k: i32| centre * ratio.powf(f64::from(k) / 20_000.0);
        let best = (-20_000..=20_000).min_by(|a, b| value(at(*a)).total_cmp(&value(at(*b))));
        centre = at(best.unwrap());
        ratio = ratio.powf(1e-3);
    }
    value(centre)
}

/// The pole placement of Ryu and Rump (pi-pd section 4.1) for an overshoot of 8 % and a settling
/// time of 0.5 s, four time constants.
struct Placed {
    /// K_P and K_D of the PD part.
    pd: [f64; 2],
    /// K_P, K_I and K_D of PD and PI in series.
    pid: [f64; 3],
}

fn placed() -> Placed {
    let (p1, p2, k) = plant(FLOWS);
    let log = 0.08_f64.ln();
    let xi = (log * log / (std::f64::consts::PI.powi(2) + log * log)).sqrt();
    let omega_n = 4.0 / (0.5 * xi);
    let k_p1 = (omega_n * omega_n - p1 * p2) / k;
    let k_d1 = (2.0 * xi * omega_n - p1 - p2) / k;
    // The closed loop of plant and PD part is s² + 2ξω_n·s + ω_n².
    let s = Complex(-0.7, 3.0);
    let closed = (s + p1) * (s + p2) + (s * k_d1 + k_p1) * k;
    let wanted = s * s + s * (2.0 * xi * omega_n) + omega_n * omega_n;
    assert!((closed - wanted).size() < 1e-9 * wanted.size());
    let k_p2 = omega_n * omega_n / (k * k_p1);
    // (K_P1 + K_D1·s)·K_P2·(1 + p1/s), by eq. (5) with the zero of the PI part on TCP's pole.
    Placed {
        pd: [k_p1, k_d1],
        pid: [k_p2 * (k_p1 + k_d1 * p1), k_p2 * k_p1 * p1, k_p2 * k_d1],
    }
}

const PLACEMENT: &[(&str, &str)] = &[
    ("overshoot", "0.08"),
    ("settling", "500ms"),
    ("tuning", "0.13"),
];

#[test]
fn the_design_of_pid_places_the_poles() {
    let [k_p, k_i, k_d] = placed().pid.map(|gain| 0.13 * gain);
    let design = designed("pid", &[("interval", "31ms")], PLACEMENT, FLOWS, PACKETS);
    let gain = |name: &str| {
        let gain = design.gains.iter().find(|(key, _)| *key == name);
        gain.unwrap_or_else(|| panic!("no gain {name}")).1
    };
    for (name, expected) in [("k_p", k_p), ("k_i", k_i), ("k_d", k_d)] {
        let value = design.params.iter().find(|(key, _)| *key == name);
        let value = designed_number(&value.unwrap().1);
        assert_close(name, value, expected, 1e-8);
    }
    let (integral, derivative) = (k_i * 0.0155, k_d / 0.031);
    assert_close("a", gain("a"), k_p + integral + derivative, 1e-9);
    assert_close("b", gain("b"), k_p - integral + 2.0 * derivative, 1e-9);
    assert_close("c", gain("c"), derivative, 1e-9);
}

/// bigdeli's laws divide their error by the buffer. P has its crossover at √(p_1·p_2), as in Hollot
/// et al. 2001.
#[test]
fn the_designs_of_averaged_controllers_are_per_buffer() {
    let (p1, p2, k) = plant(FLOWS);
    // |K/((jω + p1)(jω + p2))|·K_P = 1.
    let s = J * (p1 * p2).sqrt();
    let crossing = ((s + p1) * (s + p2)).size() / k;
    let (k_p, k_i) = pi_rule(0.37);
    let placed = placed();
    let [pid_p, pid_i, pid_d] = placed.pid.map(|gain| 0.13 * BUFFER * gain);
    let [pd_p, pd_d] = placed.pd.map(|gain| 0.13 * BUFFER * gain);
    // A law, the goals of its design, and the designed gains.
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Vec<(&'a str, f64)>);
    let cases: [Case; 4] = [
        (
            "p-avg",
            &[("tuning", "0.13")],
            vec![("k_p", 0.13 * BUFFER * crossing)],
        ),
        (
            "pi-avg",
            &[("beta", "0.37")],
            vec![("k_p", BUFFER * k_p), ("k_i", BUFFER * k_i)],
        ),
        ("pd-avg", PLACEMENT, vec![("k_p", pd_p), ("k_d", pd_d)]),
        (
            "pid-avg",
            PLACEMENT,
            vec![("k_p", pid_p), ("k_i", pid_i), ("k_d", pid_d)],
        ),
    ];
    for (law, goals, gains) in cases {
        let settings = [("w_q", "0.07"), ("interval", "23ms")];
        let design = designed(law, &settings, goals, FLOWS, PACKETS);
        let mut params = vec![("target", TARGET), ("w_q", 0.07)];
        params.extend(gains.clone());
        params.push(("interval", 0.023));
        assert_designs(law, &design, &gains, &params);
    }
}

/// With the gain α_bound, the loop of plant, dead time and eq. (11) is −1 at some frequency; pi-pd
/// section 4.1 bounds the sampling time by target/C, and uses 50 ms where this is 53.3 ms.
#[test]
fn the_design_of_pi_pd_is_below_the_gain_at_which_its_loop_oscillates() {
    for (target, interval_s) in [
        (TARGET, RTT_S / 4.0),
        (90.0, 50.0 / 53.333 * 90.0 / CAPACITY),
    ] {
        for margin in [5.0, 90.0] {
            let goal = margin.to_string();
            let goals = [("gain_margin", &*goal)];
            let design = designed("pi-pd", &[], &goals, FLOWS, SetPoint::Packets(target));
            let (p1, p2, k) = plant(FLOWS);
            let bound = design.gains[2].1;
            let distance = least(|omega| {
                let (s, z_1) = (J * omega, delayed(omega, interval_s));
                let one = Complex(1.0, 0.0);
                let plant = (s * -RTT_S).exp() * k / ((s + p1) * (s + p2));
                let law = (one + z_1) / (one - z_1) * (bound / (2.0 * target));
                (plant * law * hold(omega, interval_s) + 1.0).size()
            });
            assert!(distance < 1e-5, "{distance}");
            // The integral α/(target·T·s) and the plant's gain K/(p1·p2) have the gain 2·p1.
            let damped = 2.0 * p1 * target * interval_s * p1 * p2 / k;
            let alpha = (bound / margin).min(damped);
            let gains = [
                ("alpha", alpha),
                ("interval_s", interval_s),
                ("alpha_bound", bound),
                ("alpha_damped", damped),
                ("interval_bound_s", target / CAPACITY),
            ];
            let params = [
                ("target", target),
                ("alpha", alpha),
                ("interval", interval_s),
            ];
            assert_designs("pi-pd", &design, &gains, &params);
        }
    }
}

/// staqm appendix D. The probability of RED before the spacing of signals is 1.5 times that which
/// TCP sees, and STRED's estimate of the load makes up for it.
#[test]
fn the_designs_of_red_are_those_of_appendix_d() {
    let red = RedDesign::new(71.0, 0.23, FLOWS / (RTT_S * CAPACITY), RTT_S);
    // p_0 = 2N²/(RC)² = L_red·q_d.
    let q_d = probability(FLOWS) / red.l_red;
    for target in [TARGET, 40.0] {
        let (min_th, max_th) = match q_d < target {
            true => (target - q_d, target + q_d),
            false => (0.0, 2.0 * q_d),
        };
        assert_eq!(q_d < target, target == TARGET, "{q_d}");
        let hundredths = |pkts: f64| (100.0 * pkts).round() / 100.0;
        let range = hundredths(max_th) - hundredths(min_th);
        let gains = [
            ("k_red", red.k_red),
            ("l_red", red.l_red),
            ("w_q", red.w_q()),
            ("q_d", q_d),
            ("max_p", red.l_red * range),
            ("omega_g", red.omega_g),
        ];
        let goals = [("phase_margin", "71"), ("crossover", "0.23")];
        // A threshold of zero has no relative error.
        let thresholds = |design: &Design| {
            let number = |name: &str| {
                let value = design.params.iter().find(|(key, _)| *key == name);
                designed_number(&value.unwrap().1)
            };
            assert!((number("min_th") - min_th).abs() < 0.006);
            assert!((number("max_th") - max_th).abs() < 0.006);
        };
        for (law, wait, rate) in [("red", "true", 2.0 / 3.0), ("red", "false", 2.0)] {
            let settings = [("wait", wait)];
            let design = designed(law, &settings, &goals, FLOWS, SetPoint::Packets(target));
            thresholds(&design);
            let params = [("max_p", red.l_red * range / rate), ("w_q", red.w_q())];
            assert_designs(law, &without_thresholds(design), &gains, &params);
        }
        let design = designed("ared", &[], &goals, FLOWS, SetPoint::Packets(target));
        thresholds(&design);
        let params = [("max_p", 1.5 * red.l_red * range), ("w_q", red.w_q())];
        assert_designs("ared", &without_thresholds(design), &gains, &params);
        for (load_time, load_time_s) in [("1ms", 1.0 / red.omega_g), ("900s", 900.0)] {
            let settings = [
                ("phase_margin", "71"),
                ("crossover", "0.23"),
                ("load_time", load_time),
            ];
            let design = designed("stred", &settings, &[], FLOWS, SetPoint::Packets(target));
            thresholds(&design);
            let params = [
                ("phase_margin", 71.0),
                ("crossover", 0.23),
                ("rtt", RTT_S),
                ("flows", FLOWS),
                ("load_time", load_time_s),
            ];
            assert_designs("stred", &without_thresholds(design), &gains, &params);
        }
    }
}

fn without_thresholds(mut design: Design) -> Design {
    design
        .params
        .retain(|(name, _)| !matches!(*name, "min_th" | "max_th"));
    design
}

/// PD-RED gets PI's gains, of which RED's own slope is a part. pd-red has its thresholds at 15 and
/// 785 packets for a target of 400.
#[test]
fn the_design_of_pd_red_adds_up_to_pi() {
    let settings = [("interval", "13ms"), ("w_q", "1e-6")];
    let design = designed("pd-red", &settings, &[("beta", "0.37")], FLOWS, PACKETS);
    let (k_p, k_i) = pi_rule(0.37);
    let (min_th, max_th) = (TARGET * 15.0 / 400.0, TARGET * 785.0 / 400.0);
    // At the target the average is midway between the thresholds, where p = rate·max_p/2.
    let (rate, share) = (2.0 / 3.0, 0.5);
    let own_slope = NEEDED / (TARGET - min_th);
    assert!(own_slope < k_p);
    let path = rate * share / BUFFER;
    let (law_p, law_d) = (k_i * 0.013 / path, (k_p - own_slope) / path);
    let max_p = NEEDED / (rate * share);
    let gains = [("k_p", law_p), ("k_d", law_d), ("max_p", max_p)];
    // The pole of the average is ten times the crossover β/R.
    let w_q = 1.0 - (-10.0 * 0.37 / RTT_S / CAPACITY).exp();
    let params = [
        ("target", TARGET),
        ("k_p", law_p),
        ("k_d", law_d),
        ("min_th", min_th),
        ("max_th", max_th),
        ("max_p", max_p),
        ("w_q", w_q),
        ("interval", 0.013),
    ];
    assert_designs("pd-red", &design, &gains, &params);
}

/// PI's rule for a delay: C packets are a second. PIE multiplies its gains by a half for a
/// probability of 1 to 10 %, and PI2 by the slope of the square.
#[test]
fn the_designs_of_pie_and_pi2_are_pi_for_a_delay() {
    let (k_p, k_i) = pi_rule(0.37);
    let (alpha, beta) = (k_i * CAPACITY * 0.011, k_p * CAPACITY);
    let target = SetPoint::Delay(Span::from_millis(21));
    let goals = [("crossover", "0.37")];
    let p = 1.85 * NEEDED / (1.0 + 0.5 * NEEDED);
    assert!(0.01 < p && p < 0.1);
    for (derandomise, slope) in [("true", 1.85 / (1.85 - 0.5 * p).powi(2)), ("false", 1.0)] {
        let settings = [("interval", "11ms"), ("derandomise", derandomise)];
        let design = designed("pie", &settings, &goals, FLOWS, target);
        let factor = 0.5 * slope;
        let designed = [("alpha", alpha / factor), ("beta", beta / factor)];
        let gains = [&designed[..], &[("gain_factor", factor)]].concat();
        let params = [&[("target", 0.021)], &designed[..], &[("interval", 0.011)]];
        assert_designs("pie", &design, &gains, &params.concat());
    }
    for law in ["pi2", "dualpi2"] {
        let design = designed(law, &[("interval", "11ms")], &goals, FLOWS, target);
        let slope = 2.0 * NEEDED.sqrt();
        let gains = [("alpha", alpha / slope), ("beta", beta / slope)];
        let params = [&[("target", 0.021)], &gains[..], &[("interval", 0.011)]];
        assert_designs(law, &design, &gains, &params.concat());
    }
}

/// e-avq eq. (18) with C̃' = −α·δλ: the loop oscillates where s² + K11·s + (K12·s + α·K2)e^{−sd} has
/// a root jω. The design takes half of that α, and leaves it alone where no α is stable.
#[test]
fn the_design_of_avq_is_half_the_gain_at_which_its_loop_oscillates() {
    let gamma = 0.93;
    let rates = |flows: f64| {
        let window = gamma * RTT_S * CAPACITY / flows;
        (1.0 / (window * RTT_S), 2.0 / 3.0 * window / RTT_S)
    };
    let settings = [("gamma", "0.93"), ("alpha", "0.29")];
    let flows = 230.0;
    let design = designed("avq", &settings, &[], flows, PACKETS);
    let (k11, k12) = rates(flows);
    let bound = design.gains[2].1;
    let residue = least(|omega| {
        let s = J * omega;
        (s * s + s * k11 + (s * k12 + bound * k12) * (s * -RTT_S).exp()).size() / omega.powi(2)
    });
    assert!(residue < 1e-5, "{residue}");
    let gains = [
        ("k11", k11),
        ("k12", k12),
        ("alpha_bound", bound),
        ("alpha", bound / 2.0),
    ];
    assert_designs("avq", &design, &gains, &[("alpha", bound / 2.0)]);
    let (k11, k12) = rates(FLOWS);
    let design = designed("avq", &settings, &[], FLOWS, PACKETS);
    let gains = [("k11", k11), ("k12", k12), ("alpha", 0.29)];
    assert_designs("avq", &design, &gains, &[("alpha", 0.29)]);
    let law = find("avq").unwrap().read(&values(&settings)).unwrap();
    let control = law.theory().unwrap().rate_control().unwrap();
    // Eq. (1): C̃' = α·(γC − λ).
    assert_eq!((control.utilisation, control.k_i), (0.93, 0.29));
    assert_eq!((control.k_p, control.k_d), (0.0, 0.0));
}

#[test]
fn the_network_of_these_tests_has_the_capacity_of_its_link() {
    assert_close(
        "capacity",
        site().rate.packets_per_sec(site().packet),
        CAPACITY,
        1e-12,
    );
    assert_close(
        "probability",
        point().probability(),
        probability(FLOWS),
        1e-12,
    );
}

/// Returns true if the law with these settings has a model at this load N/(RC).
fn is_modelled(law: &str, settings: &[(&str, &str)], load: f64) -> bool {
    let law = find(law).unwrap().read(&values(settings)).unwrap();
    let point = OperatingPoint::of_flows(load * RTT_S * CAPACITY, RTT_S, CAPACITY);
    law.linear(&point, &site()).unwrap().is_some()
}

/// Laws without an equilibrium at a load: the probability that TCP needs is out of the law's range,
/// or the law has no gain.
#[test]
fn a_law_without_an_equilibrium_has_no_model() {
    // A load of 0.2 needs p = 8 %, which is p_b = 12 %.
    for (law, settings, with, without) in [
        (
            "red",
            &[("gentle", "false")][..],
            ("max_p", "0.121"),
            ("max_p", "0.119"),
        ),
        (
            "red",
            &[("max_p", "0.1"), ("gentle", "true")],
            ("wait", "true"),
            ("gentle", "false"),
        ),
        ("pi-pd", &[], ("alpha", "1e-4"), ("alpha", "0")),
        ("pie", &[], ("alpha", "0.1"), ("alpha", "0")),
        ("rem", &[], ("gamma", "0.001"), ("gamma", "0")),
        (
            "pd-red",
            &[("target", "230p")],
            ("k_p", "0.001"),
            ("k_p", "0"),
        ),
        // A target at or outside of RED's thresholds, which are 15 and 785 packets.
        (
            "pd-red",
            &[("target", "230p")],
            ("min_th", "229p"),
            ("min_th", "230p"),
        ),
        (
            "pd-red",
            &[("target", "230p")],
            ("max_th", "300p"),
            ("max_th", "229p"),
        ),
        // P's equilibrium is at p·B/k_p = 0.08·910/0.4 = 182 packets.
        (
            "p-avg",
            &[("k_p", "0.4")],
            ("min_th", "181p"),
            ("min_th", "183p"),
        ),
        (
            "p-avg",
            &[("k_p", "0.4")],
            ("min_th", "0p"),
            ("min_th", "183p"),
        ),
    ] {
        let model = |setting| is_modelled(law, &[settings, &[setting]].concat(), 0.2);
        assert!(model(with), "{law} {settings:?} {with:?}");
        assert!(!model(without), "{law} {settings:?} {without:?}");
    }
    // Gentle RED reaches p_b = 1 at p = 2/3, where the load is √(1/3).
    let gentle = [("gentle", "true")];
    let limit = (1.0_f64 / 3.0).sqrt();
    assert!(is_modelled("red", &gentle, limit * 0.999));
    assert!(!is_modelled("red", &gentle, limit * 1.001));
    // p_b = 1 is out of PD-RED's range, too.
    let pd_red = [("target", "230p")];
    assert!(is_modelled("pd-red", &pd_red, limit * 0.999));
    assert!(!is_modelled("pd-red", &pd_red, limit * 1.001));
    // STRED's average is q_d above min_th, which must be in the range up to max_th.
    let design = RedDesign::new(71.0, 0.23, FLOWS / (RTT_S * CAPACITY), 0.21);
    // With spaced signals p_b is 1.5 times p, so that the estimated load is √1.5 times as high.
    let load = FLOWS / (RTT_S * CAPACITY) / 1.5_f64.sqrt();
    let q_d = 2.0 * (FLOWS / (RTT_S * CAPACITY)).powi(2) / design.l_red;
    for (factor, expected) in [(1.01, true), (0.99, false)] {
        let max_th = format!("{}p", factor * q_d);
        let settings = [
            ("phase_margin", "71"),
            ("crossover", "0.23"),
            ("rtt", "210ms"),
            ("max_th", &*max_th),
        ];
        assert_eq!(is_modelled("stred", &settings, load), expected, "{factor}");
    }
}

/// Without integral action, the output of a law that starts at an empty queue is proportional to
/// the queue.
#[test]
fn a_law_without_an_integral_has_its_equilibrium_where_tcp_needs_its_output() {
    let p = probability(FLOWS);
    let rem = [
        ("target", "230p"),
        ("gamma", "0.0017"),
        ("alpha", "0"),
        ("phi", "1.19"),
    ];
    // 1 − φ^{−γq} = p.
    let queue_pkts = model("rem", &rem, FLOWS).queue_pkts;
    assert_close("rem", 1.0 - 1.19_f64.powf(-0.0017 * queue_pkts), p, 1e-9);
    let pi = [("target", "230p"), ("a", "3e-5"), ("b", "3e-5")];
    assert_close("pi", model("pi", &pi, FLOWS).queue_pkts * 3e-5, p, 1e-9);
    // p' = β·q/C.
    let pi2 = [("target", "21ms"), ("alpha", "0"), ("beta", "1.7")];
    let filter = model("pi2", &pi2, FLOWS);
    assert_close("pi2", 1.7 * filter.queue_pkts / CAPACITY, p.sqrt(), 1e-9);
    assert_close("pi2's delay", filter.age_s, p.sqrt() / 1.7, 1e-9);
}

/// Flows that respond to the fraction of marks need PIE to mark at any probability (RFC 8033 section
/// 5.1 lets it drop above 10 %).
#[test]
fn the_design_of_pie_for_marking_flows_marks_at_any_probability() {
    let law = find("pie").unwrap().read(&[]).unwrap();
    let settings = |marked| {
        let request = DesignRequest {
            point: point(),
            probability: NEEDED,
            marked,
            set_point: SetPoint::Delay(Span::from_millis(21)),
            site: site(),
        };
        let design = law.theory().unwrap().design(&request, &[]);
        design.unwrap().unwrap().settings
    };
    assert_eq!(settings(false), []);
    let expected = [
        ("mark_up_to", Value::Number(1.0)),
        ("restart_at_mark", Value::Flag(true)),
    ];
    assert_eq!(settings(true), expected);
}

/// With a target of few packets, RED's own slope exceeds PI's gain, and no derivative is added.
#[test]
fn the_design_of_pd_red_has_no_negative_gain() {
    let target = 5.0;
    let (k_p, _) = pi_rule(0.37);
    assert!(NEEDED / (target - target * 15.0 / 400.0) > k_p);
    let goals = [("beta", "0.37")];
    let design = designed("pd-red", &[], &goals, FLOWS, SetPoint::Packets(target));
    assert_eq!(design.gains[1], ("k_d", 0.0));
    let at_target = designed("pd-red", &[], &goals, FLOWS, PACKETS);
    assert!(at_target.gains[1].1 > 0.0);
    assert_eq!(design.notes.len(), at_target.notes.len() + 1);
}

/// pi-pd section 4.1 takes R/2 as the time constant of the closed loop, a quarter of 2R.
#[test]
fn a_settling_time_of_zero_is_two_round_trips() {
    for law in ["pid", "pd-avg", "pid-avg"] {
        let gains = |settling| designed(law, &[], &[("settling", settling)], FLOWS, PACKETS).gains;
        for ((name, default), (_, explicit)) in gains("0s").iter().zip(gains("340ms")) {
            assert_close(&format!("{law} {name}"), *default, explicit, 1e-9);
        }
        assert_ne!(gains("0s"), gains("400ms"));
    }
}
