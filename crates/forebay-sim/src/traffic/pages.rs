//! Web sessions of pages, as in ns-2's PagePool/WebTraf. The objects of a page start at
//! exponentially distributed intervals. When the last of them has been transferred, the session
//! waits for an exponentially distributed time before the next page. The request, one small packet
//! in ns-2, is not simulated.

use forebay_scenario::{self as scenario, Pareto2};
use forebay_units::{Bytes, Rng, Time};

use super::{after, packets, Act, Action, Application};

/// Web sessions that load page after page.
pub struct Pages {
    params: scenario::Pages,
    size: Pareto2,
    payload_bytes: u64,
    sessions: Vec<Session>,
}

/// The state of one session.
struct Session {
    /// Number of pages still to start; `None` for no limit.
    pages: Option<u32>,
    /// Number of objects of this page still to start.
    to_start: u32,
    /// Number of objects being transferred.
    under_way: u32,
    /// The session's own random stream, so that its draws do not depend on the other sessions.
    rng: Rng,
}

impl Pages {
    /// Creates the sessions; `payload` is the payload of a packet.
    pub fn new(
        pages: &scenario::Pages,
        size: &Pareto2,
        payload: Bytes,
        sessions: u32,
        mut rng: Rng,
    ) -> Pages {
        let session = |_| Session {
            pages: None,
            to_start: 0,
            under_way: 0,
            rng: Rng::new(rng.next_u64(), "session"),
        };
        Pages {
            params: pages.clone(),
            size: size.clone(),
            payload_bytes: payload.0,
            sessions: (0..sessions).map(session).collect(),
        }
    }

    /// Returns the act that starts the first object of the next page, after the pause between
    /// pages; `None` if no page follows.
    fn page(&mut self, flow: u32, now: Time, stop: Option<Time>) -> Option<Act> {
        let session = &mut self.sessions[flow as usize];
        if let Some(left) = &mut session.pages {
            *left = left.checked_sub(1)?;
        }
        session.to_start = self.params.objects;
        let at = after(now, self.params.page_gap, &mut session.rng);
        self.object(flow, at, stop)
    }

    /// Returns the act that starts an object at `at`, with a drawn size; `None` after the stop.
    fn object(&mut self, flow: u32, at: Time, stop: Option<Time>) -> Option<Act> {
        let session = &mut self.sessions[flow as usize];
        let packets = packets(&self.size, self.payload_bytes, &mut session.rng);
        stop.is_none_or(|stop| at < stop).then_some(Act {
            at,
            action: Action::Transfer(packets),
        })
    }
}

impl Application for Pages {
    /// Returns the first object of the session, after a pause, so that sessions do not start
    /// together.
    fn first(&mut self, flow: u32, start: Time, stop: Option<Time>) -> Option<Act> {
        self.sessions[flow as usize].pages = self.params.pages.0;
        self.page(flow, start, stop)
    }

    fn next(&mut self, flow: u32, done: Act, stop: Option<Time>) -> Option<Act> {
        let session = &mut self.sessions[flow as usize];
        session.under_way += 1;
        session.to_start -= 1;
        if session.to_start == 0 {
            return None;
        }
        let at = after(done.at, self.params.object_gap, &mut session.rng);
        self.object(flow, at, stop)
    }

    fn transferred(&mut self, flow: u32, now: Time, stop: Option<Time>) -> Option<Act> {
        let session = &mut self.sessions[flow as usize];
        session.under_way -= 1;
        if session.under_way > 0 || session.to_start > 0 {
            return None;
        }
        self.page(flow, now, stop)
    }
}

#[cfg(test)]
mod tests {
    use super::super::statistics::follows;
    use super::*;
    use forebay_scenario::Maybe;
    use forebay_units::{Params, Span};

    fn sessions(pages: Option<u32>, objects: u32) -> Pages {
        let model = scenario::Pages {
            pages: Maybe(pages),
            page_gap: Span::from_secs(3),
            objects,
            object_gap: Span::from_millis(20),
        };
        let size = Pareto2 {
            scale: Bytes(2400),
            ..Pareto2::defaults()
        };
        Pages::new(&model, &size, Bytes(1), 1, Rng::new(4, "pages"))
    }

    #[test]
    fn gaps_are_exponential_and_sizes_pareto() {
        let mut pages = sessions(None, 3);
        let (mut page_gaps, mut object_gaps, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        let mut act = pages.first(0, Time::ZERO, None).unwrap();
        let mut ended = Time::ZERO;
        for _ in 0..20_000 {
            page_gaps.push((act.at - ended).as_secs_f64());
            for object in 0..3 {
                let Action::Transfer(size) = act.action else {
                    panic!("{act:?}")
                };
                sizes.push(f64::from(size));
                let next = pages.next(0, act, None);
                assert_eq!(next.is_some(), object < 2);
                if let Some(next) = next {
                    object_gaps.push((next.at - act.at).as_secs_f64());
                    act = next;
                }
            }
            ended = act.at + Span::from_millis(100);
            assert!(pages.transferred(0, ended, None).is_none());
            assert!(pages.transferred(0, ended, None).is_none());
            act = pages.transferred(0, ended, None).unwrap();
        }
        follows(&page_gaps, |t| 1.0 - (-t / 3.0).exp());
        follows(&object_gaps, |t| 1.0 - (-t / 0.02).exp());
        // With packets of one byte the rounding is negligible.
        follows(&sizes, |x| 1.0 - (1.0 + (x - 0.5) / 2400.0).powf(-1.2));
    }

    #[test]
    fn a_session_ends_after_its_pages() {
        let mut pages = sessions(Some(2), 1);
        let first = pages.first(0, Time::ZERO, None).unwrap();
        assert!(pages.next(0, first, None).is_none());
        let second = pages.transferred(0, first.at, None).unwrap();
        assert!(pages.next(0, second, None).is_none());
        assert!(pages.transferred(0, second.at, None).is_none());
    }
}
