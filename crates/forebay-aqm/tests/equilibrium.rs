//! The equilibrium of windows and their dynamics around it, and the equilibria of mixes of flows under
//! every registered law.

use forebay_aqm::laws::{find, LAWS};
use forebay_theory::equilibrium::{Equilibrium, FlowClass, Flows, MixedFlows, RenoFlows};
use forebay_theory::window_law::WindowLaw;
use forebay_units::{Bytes, Rate, Site};

/// Returns a link of 10 000 packets/s.
fn site(buffer_pkts: f64) -> Site {
    Site {
        rate: Rate::from_bps(80_000_000),
        buffer_pkts,
        packet: Bytes(1000),
    }
}

const CAPACITY: f64 = 10_000.0;

/// Solves a·x = b by Gaussian elimination with partial pivoting.
fn solved(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    for k in 0..n {
        let pivot = (k..n).max_by(|i, j| a[*i][k].abs().total_cmp(&a[*j][k].abs()));
        let pivot = pivot.unwrap();
        a.swap(k, pivot);
        b.swap(k, pivot);
        let (above, below) = a.split_at_mut(k + 1);
        for (row, i) in below.iter_mut().zip(k + 1..) {
            let factor = row[k] / above[k][k];
            for (x, pivot) in row.iter_mut().zip(&above[k]) {
                *x -= factor * pivot;
            }
            b[i] -= factor * b[k];
        }
    }
    for k in (0..n).rev() {
        let sum: f64 = (k + 1..n).map(|j| a[k][j] * b[j]).sum();
        b[k] = (b[k] - sum) / a[k][k];
    }
    b
}

/// The steady-state response of the linear window dynamics equals the slope of the equilibrium window.
#[test]
fn the_steady_state_response_is_the_slope_of_the_equilibrium() {
    for law in WindowLaw::ALL {
        for p in [1e-4, 3e-3, 0.05, 0.3] {
            for rtt_s in [0.004, 0.03, 0.2] {
                let motion = law.motion(p, rtt_s);
                assert_eq!(motion.b.len(), law.order());
                let steady_state = |input: &[f64]| {
                    let x = solved(motion.a.clone(), input.iter().map(|b| -b).collect());
                    let w: f64 = motion.c.iter().zip(&x).map(|(c, x)| c * x).sum();
                    w
                };
                let slope =
                    |step: f64, at: &dyn Fn(f64) -> f64| (at(step) - at(-step)) / step / 2.0;
                let w = law.window_pkts(p, rtt_s);
                let slope_in_p = slope(1e-5 * p, &|step| law.window_pkts(p + step, rtt_s));
                let slope_in_rtt = slope(1e-5 * rtt_s, &|step| law.window_pkts(p, rtt_s + step));
                // CUBIC's window is constant in a narrow region.
                let near = |got: f64, want: f64| (got - want).abs() < 0.02 * w + 1e-5 * want.abs();
                let name = law.name();
                let (got, want) = (p * steady_state(&motion.b), p * slope_in_p);
                assert!(near(got, want), "{name} p={p} R={rtt_s}: {got} {want}");
                let (got, want) = (rtt_s * steady_state(&motion.e), rtt_s * slope_in_rtt);
                assert!(near(got, want), "{name} p={p} R={rtt_s}: {got} {want}");
            }
        }
    }
}

/// Returns a mix of flows; each class has a window law, a share of the flows, and an RTT ratio.
fn mix(classes: &[(WindowLaw, f64, f64)], flows: f64, propagation_s: f64) -> MixedFlows {
    let class = |&(window_law, share, rtt_ratio): &(WindowLaw, f64, f64)| {
        FlowClass::of_share(window_law, share, rtt_ratio)
    };
    let classes = classes.iter().map(class).collect();
    MixedFlows::new(classes, flows, propagation_s, CAPACITY)
}

#[test]
fn a_mix_fills_the_link() {
    let flows = mix(
        &[
            (WindowLaw::Cubic, 0.5, 0.4),
            (WindowLaw::IndependentReno, 0.3, 1.0),
            (WindowLaw::Dctcp, 0.2, 2.5),
        ],
        40.0,
        0.08,
    );
    // The order matters, because each search starts at the last solution.
    for queue_pkts in [0.0, 5.0, 2e9, 100.0, 1e5] {
        let p = flows.probability(queue_pkts);
        let rate = flows.rate_pkts_per_s(p, queue_pkts);
        assert!(
            (rate / CAPACITY - 1.0).abs() < 1e-12,
            "{queue_pkts}: {rate}"
        );
    }
}

/// Reno flows have the same equilibrium as a mix of one class, as a mix of two equal classes, and as
/// `RenoFlows`.
#[test]
fn a_mix_of_reno_flows_has_the_equilibrium_of_reno() {
    let mut kinds = Vec::new();
    for law in LAWS {
        for buffer_pkts in [60.0, 1e4, 1e9] {
            for flows in [2.0, 60.0, 3000.0] {
                let site = site(buffer_pkts);
                let configured = law.read(&[]).unwrap();
                let reno = RenoFlows {
                    flows,
                    propagation_s: 0.1,
                    capacity_pkts_per_s: CAPACITY,
                };
                let Ok(alone) = configured.settle(&reno, &site) else {
                    continue;
                };
                let half = (WindowLaw::Reno, 0.5, 1.0);
                for classes in [&[(WindowLaw::Reno, 1.0, 1.0)][..], &[half, half]] {
                    let mixed = configured.settle(&mix(classes, flows, 0.1), &site).unwrap();
                    let name = format!("{} {flows} {buffer_pkts}", law.kind);
                    let summary = |equilibrium: &Equilibrium| match equilibrium {
                        Equilibrium::Linear {
                            point, queue_pkts, ..
                        } => ("linear", *queue_pkts, point.probability()),
                        Equilibrium::Unmodelled => ("unmodelled", 0.0, 0.0),
                        Equilibrium::Empty { probability } => ("empty", 0.0, *probability),
                        Equilibrium::Saturated {
                            queue_pkts,
                            probability,
                        } => ("saturated", *queue_pkts, *probability),
                        Equilibrium::Full {
                            queue_pkts,
                            probability,
                        } => ("full", *queue_pkts, *probability),
                        Equilibrium::Jump {
                            queue_pkts,
                            probability,
                        } => ("jump", *queue_pkts, *probability),
                        Equilibrium::Small { .. } => unreachable!("Reno has no least window"),
                    };
                    let (got, want) = (summary(&mixed), summary(&alone));
                    assert_eq!(got.0, want.0, "{name}");
                    assert!(
                        (got.1 - want.1).abs() <= 1e-9 * want.1,
                        "{name}: {got:?} {want:?}"
                    );
                    assert!(
                        (got.2 - want.2).abs() <= 1e-9 * want.2,
                        "{name}: {got:?} {want:?}"
                    );
                    kinds.push(got.0);
                }
            }
        }
    }
    for kind in ["linear", "unmodelled", "saturated", "full", "empty"] {
        assert!(kinds.contains(&kind), "no law is {kind}");
    }
}

#[test]
fn windows_below_the_minimum_are_reported() {
    let law = find("pi").unwrap().read(&[]).unwrap();
    let site = site(1e6);
    let at = |law_of, flows: f64| {
        let flows = mix(&[(law_of, 1.0, 1.0)], flows, 0.06);
        let equilibrium = law.settle(&flows, &site).unwrap();
        let small = matches!(equilibrium, Equilibrium::Small { .. });
        // PI keeps its queue at the target with any window.
        let window = flows.capacity_pkts_per_s * (0.06 + 200.0 / CAPACITY) / flows.flows;
        let point = flows.operating_point(200.0);
        assert_eq!(flows.has_small_window(&point, 200.0), small);
        (window, small)
    };
    for (law_of, flows) in [(WindowLaw::Cubic, 600.0), (WindowLaw::Cubic, 900.0)] {
        let (window, small) = at(law_of, flows);
        assert_eq!(small, window < law_of.least_pkts(), "{window}");
    }
    // Prague can pace windows below two packets.
    let (window, small) = at(WindowLaw::Prague, 500.0);
    assert!(window < 2.0 && !small, "{window}");
}
