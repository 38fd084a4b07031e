//! Live view of a run: it shows the state of the queue, and its keys change the link while traffic
//! runs. Without a terminal it prints a line each second.

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::sync::mpsc::Sender;
use std::sync::PoisonError;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use forebay_aqm::laws::LAWS;
use forebay_scenario::LawChoice;
use forebay_units::cast::{whole_u32, whole_u64};
use forebay_units::{ParamError, Rate, SetPoint, Span, Time, Value};
use nix::sys::signal::Signal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span as Words};
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Paragraph};
use ratatui::Frame;

use crate::classes::ClassNow;
use crate::live::{DirectionNow, LiveChange, Picture, Shared};
use crate::settings::{DirectionSettings, Settings};
use forebay_packets::ip::{Flow, TCP, UDP};

/// The number of pictures that the curves show.
const HISTORY: usize = 300;
/// The interval at which the view is drawn.
const REDRAW: Duration = Duration::from_millis(200);
/// The interval between two lines where there is no terminal.
const LINE_EVERY: Span = Span::from_secs(1);
/// The names of the directions.
const WAYS: [&str; 2] = ["up", "down"];
/// The factor by which a key press changes a rate or a set-point.
const STEP: f64 = 1.1;

/// The state of the view: the pictures that it shows, and the settings after the changes that were
/// requested by its keys.
struct View {
    ways: [DirectionSettings; 2],
    /// The law that each direction started with, which returns after the keys have gone through all
    /// laws.
    first_laws: [LawChoice; 2],
    mtu: u32,
    /// The direction that is shown: 0 is up, 1 is down.
    way: usize,
    pictures: VecDeque<Picture>,
    changes: Sender<LiveChange>,
    /// The text about the last key press.
    note: String,
}

/// Starts a thread that shows a run until the run ends. Where standard input and output are a
/// terminal, the view uses the whole terminal; otherwise lines go to standard error.
///
/// # Errors
/// The thread cannot be started.
pub fn start(
    settings: &Settings,
    shared: Shared,
    changes: Sender<LiveChange>,
) -> io::Result<JoinHandle<()>> {
    let mut view = View {
        ways: [settings.up.clone(), settings.down.clone()],
        first_laws: [settings.up.law.clone(), settings.down.law.clone()],
        mtu: settings.mtu,
        way: 0,
        pictures: VecDeque::with_capacity(HISTORY),
        changes,
        note: String::new(),
    };
    thread::Builder::new().spawn(move || {
        if io::stdout().is_terminal() && io::stdin().is_terminal() {
            // The run goes on where the terminal fails.
            let mut terminal = ratatui::init();
            let _ = view.run(&mut terminal, &shared);
            ratatui::restore();
        } else {
            lines(&shared);
        }
    })
}

/// Returns a copy of the last picture.
fn picture_of(shared: &Shared) -> Picture {
    shared
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Prints a line each second for each direction in which a packet has arrived.
fn lines(shared: &Shared) {
    let mut last = picture_of(shared);
    let mut next = Time::ZERO + LINE_EVERY;
    loop {
        thread::sleep(REDRAW / 4);
        let picture = picture_of(shared);
        if picture.ended {
            return;
        }
        if picture.time < next {
            continue;
        }
        while next <= picture.time {
            next += LINE_EVERY;
        }
        let used = |way: &usize| picture.ways[*way].counts.arrived_packets > 0;
        for way in (0..2).filter(used) {
            eprintln!("{}", line(&last, &picture, way));
            for class in picture.ways[way].shown_classes() {
                let words = class_words(class, last.ways[way].class(class.name));
                eprintln!("{:14} {}: {words}", "", class.name);
            }
        }
        if !(0..2).any(|way| used(&way)) {
            eprintln!("{:7.1} s no packet yet", picture.time.as_secs_f64());
        }
        last = picture;
    }
}

/// Returns the line of a direction for the time between two pictures.
fn line(last: &Picture, picture: &Picture, way: usize) -> String {
    let (now, before) = (&picture.ways[way], &last.ways[way]);
    let span_s = picture.time.since(last.time).as_secs_f64();
    let bits = 8.0 * (now.counts.sent_bytes - before.counts.sent_bytes) as f64;
    format!(
        "{:7.1} s {:4} {:8.2} Mbit/s, queue {:4} packets, {}delay {:.1} ms (99 %: {:.1} ms), {} dropped, {} marked",
        picture.time.as_secs_f64(),
        WAYS[way],
        bits / span_s / 1e6,
        now.queue_pkts,
        probability(now).map(|p| format!("p {p:.4}, ")).unwrap_or_default(),
        1e3 * now.delay_s[0],
        1e3 * now.delay_s[2],
        drops(now) - drops(before),
        now.counts.marks - before.counts.marks,
    )
}

/// Returns the law's drop or mark probability; `None` where the law has none.
fn probability(now: &DirectionNow) -> Option<f64> {
    let probe = now.probes.iter().find(|(name, _)| *name == "p");
    probe.map(|(_, value)| *value)
}

/// Returns the packets that the queue has dropped for any reason.
fn drops(now: &DirectionNow) -> u64 {
    now.counts.early_drops + now.counts.forced_drops + now.counts.overflow_drops
}

impl View {
    /// Draws pictures and handles key presses until the run ends.
    fn run(&mut self, terminal: &mut ratatui::DefaultTerminal, shared: &Shared) -> io::Result<()> {
        loop {
            let picture = picture_of(shared);
            if picture.ended {
                return Ok(());
            }
            self.add(picture);
            terminal.draw(|frame| self.draw(frame))?;
            if event::poll(REDRAW)? {
                if let Event::Key(key) = event::read()? {
                    if key.kind == KeyEventKind::Press {
                        let control = key.modifiers.contains(KeyModifiers::CONTROL);
                        self.press(key.code, control);
                    }
                }
            }
        }
    }

    /// Adds a picture, unless the last one has the same time.
    fn add(&mut self, picture: Picture) {
        if self.pictures.back().map(|last| last.time) == Some(picture.time) {
            return;
        }
        if self.pictures.len() == HISTORY {
            self.pictures.pop_front();
        }
        self.pictures.push_back(picture);
    }

    /// Handles a key press, with the Control key where `control` is true.
    fn press(&mut self, key: KeyCode, control: bool) {
        match key {
            // Without the view, the terminal would send this signal itself.
            KeyCode::Char('c') if control => self.end(Signal::SIGINT),
            _ if control => {}
            KeyCode::Char('q') | KeyCode::Esc => self.end(Signal::SIGTERM),
            KeyCode::Tab => self.way = 1 - self.way,
            KeyCode::Up | KeyCode::Char('+') => self.scale_rate(STEP),
            KeyCode::Down | KeyCode::Char('-') => self.scale_rate(1.0 / STEP),
            KeyCode::Right | KeyCode::Char('t') => self.scale_target(STEP),
            KeyCode::Left | KeyCode::Char('T') => self.scale_target(1.0 / STEP),
            KeyCode::Char('l') => self.next_law(),
            _ => {}
        }
    }

    /// Asks for the end of the run.
    fn end(&mut self, signal: Signal) {
        self.note = format!("{signal} to the command; again: kill it");
        let _ = self.changes.send(LiveChange::Stop(signal));
    }

    /// Multiplies the rate of the direction shown.
    fn scale_rate(&mut self, factor: f64) {
        let rate = self.ways[self.way].capacity.mean_rate().as_bps() as f64 * factor;
        let rate = rounded(rate.clamp(1e3, 1e11));
        self.ways[self.way].capacity.set_rate(rate);
        self.note = format!("{}: {rate}", WAYS[self.way]);
        let _ = self.changes.send(LiveChange::Rate(self.way, rate));
    }

    /// Multiplies the set-point of the direction shown.
    fn scale_target(&mut self, factor: f64) {
        let Some((key, set_point)) = self.ways[self.way].law.set_point_param() else {
            self.note = format!("{} has no set-point", self.ways[self.way].law.spec.kind);
            return;
        };
        let scaled_point = match set_point {
            // A set-point in packets changes by at least one packet.
            SetPoint::Packets(target) => {
                let scaled = (target * factor).round();
                let moved = if scaled == target {
                    target + (factor - 1.0).signum()
                } else {
                    scaled
                };
                SetPoint::Packets(moved.max(1.0))
            }
            SetPoint::Delay(target) => {
                let scaled = three_digits(target.as_nanos() as f64 * factor);
                SetPoint::Delay(Span::from_nanos(whole_u64(scaled.max(1e3))))
            }
        };
        let law = at_set_point(&self.ways[self.way].law, key, scaled_point);
        if !law.is_ok_and(|law| self.request_law(law)) {
            self.note = format!("{scaled_point} does not fit the buffer");
        }
    }

    /// Changes to the next law that fits the queue with its defaults, or with its first parameters
    /// where the direction started with it. The law takes over the set-point of the one before.
    fn next_law(&mut self) {
        let current = &self.ways[self.way].law;
        let at = LAWS.iter().position(|law| law.kind == current.spec.kind);
        let before = current.set_point_param();
        for step in 1..LAWS.len() {
            let spec = &LAWS[(at.unwrap_or(0) + step) % LAWS.len()];
            let first = &self.first_laws[self.way];
            let mut law = match first.spec.kind == spec.kind {
                true => Ok(first.clone()),
                false => LawChoice::in_queue(spec, Vec::new(), first.queue.clone()),
            };
            // A set-point that can only be a delay has another meaning.
            let takes = spec.set_point().filter(|param| param.unit == "p");
            if let (Some((_, set_point)), Some(param)) = (before, takes) {
                law = law.and_then(|law| at_set_point(&law, param.name, set_point));
            }
            if law.is_ok_and(|law| self.request_law(law)) {
                return;
            }
        }
    }

    /// Asks for another law. Returns false where the law does not fit the queue.
    fn request_law(&mut self, law: LawChoice) -> bool {
        let way = &mut self.ways[self.way];
        if law.check(&way.site(self.mtu)).is_err() {
            return false;
        }
        let (kind, set) = (law.spec.kind, law.in_words());
        self.note = format!("{}: {kind} ({set})", WAYS[self.way]);
        way.law = law.clone();
        let _ = self.changes.send(LiveChange::Law(self.way, law));
        true
    }

    /// Draws the last picture.
    fn draw(&self, frame: &mut Frame) {
        let Some(picture) = self.pictures.back() else {
            return;
        };
        let now = &picture.ways[self.way];
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(8),
            Constraint::Length(7),
            Constraint::Length(now.class_rows()),
            Constraint::Length(1),
        ])
        .split(frame.area());
        self.head(frame, areas[0], picture, now);
        self.queue(frame, areas[1], picture.time, now);
        let below = Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)])
            .split(areas[2]);
        self.numbers(frame, below[0], picture, now);
        flows(frame, below[1], now);
        self.classes(frame, areas[3], now);
        let keys = " Tab direction   ↑↓ rate   ←→ set-point   l law   q end ";
        let keys = Line::from(vec![
            Words::from(keys).dim(),
            Words::from(self.note.as_str()),
        ]);
        frame.render_widget(Paragraph::new(keys), areas[4]);
    }

    /// Draws the line with the direction, the time and the law.
    fn head(&self, frame: &mut Frame, area: Rect, picture: &Picture, now: &DirectionNow) {
        let ends = ["client to server", "server to client"][self.way];
        let set = match now.set.as_str() {
            "" => String::new(),
            set => format!(" ({set})"),
        };
        let text = format!(
            " {} ({ends})   {:.1} s   {} under {}{set}{} ",
            WAYS[self.way],
            picture.time.as_secs_f64(),
            rounded(now.rate_bps),
            now.law,
            if now.changed { "   changed" } else { "" },
        );
        let style = Style::new().add_modifier(Modifier::REVERSED);
        frame.render_widget(Paragraph::new(text).style(style), area);
    }

    /// Draws the curve of the queue length and the line of the set-point.
    fn queue(&self, frame: &mut Frame, area: Rect, time: Time, now: &DirectionNow) {
        let end_s = time.as_secs_f64();
        let start_s = self
            .pictures
            .front()
            .map_or(0.0, |picture| picture.time.as_secs_f64());
        let queue: Vec<(f64, f64)> = self
            .pictures
            .iter()
            .map(|picture| {
                (
                    picture.time.as_secs_f64(),
                    f64::from(picture.ways[self.way].queue_pkts),
                )
            })
            .collect();
        let longest = queue.iter().map(|(_, pkts)| *pkts).fold(10.0, f64::max);
        let top = 1.1 * longest.max(now.target_pkts.unwrap_or(0.0));
        let target: Vec<(f64, f64)> = now
            .target_pkts
            .map(|target| vec![(start_s, target), (end_s, target)])
            .unwrap_or_default();
        let curve = |name, data, colour| {
            Dataset::default()
                .name(name)
                .data(data)
                .marker(Marker::Braille)
                .graph_type(GraphType::Line)
                .style(Style::new().fg(colour))
        };
        let mut curves = vec![curve("queue", &queue, Color::Cyan)];
        if !target.is_empty() {
            curves.push(curve("set-point", &target, Color::Yellow));
        }
        let chart = Chart::new(curves)
            .block(Block::bordered().title(" queue, packets "))
            .x_axis(
                Axis::default()
                    .bounds([start_s, end_s.max(start_s + 0.1)])
                    .labels([format!("{start_s:.0} s"), format!("{end_s:.0} s")]),
            )
            .y_axis(
                Axis::default()
                    .bounds([0.0, top])
                    .labels(["0".to_owned(), format!("{top:.0}")]),
            );
        frame.render_widget(chart, area);
    }

    /// Draws a line for each class: its share of the packets of about the last second, and its
    /// delay.
    fn classes(&self, frame: &mut Frame, area: Rect, now: &DirectionNow) {
        let before = self.pictures.iter().rev().nth(5);
        let recent = |class: &ClassNow| {
            let former = before.and_then(|picture| picture.ways[self.way].class(class.name));
            class.sent_packets - former.map_or(0, |former| former.sent_packets)
        };
        let all: u64 = now.classes.iter().map(recent).sum();
        let line = |class: &ClassNow| {
            let share = 100.0 * recent(class) as f64 / all.max(1) as f64;
            let words = class_words(class, None);
            Line::from(format!("{:<12} {share:5.1} %, {words}", class.name))
        };
        let lines: Vec<Line> = now.shown_classes().map(line).collect();
        let block = Block::bordered().title(" classes by share of packets ");
        frame.render_widget(Paragraph::new(lines).block(block), area);
    }

    /// Draws the numbers of the direction.
    fn numbers(&self, frame: &mut Frame, area: Rect, picture: &Picture, now: &DirectionNow) {
        // The rate is the mean over about a second.
        let before = self.pictures.iter().rev().nth(5).unwrap_or(picture);
        let span_s = picture.time.since(before.time).as_secs_f64();
        let former = &before.ways[self.way];
        let sent_bits = 8.0 * (now.counts.sent_bytes - former.counts.sent_bytes) as f64;
        let [median, _, worst] = now.delay_s.map(|delay_s| 1e3 * delay_s);
        let lines = vec![
            Line::from(format!(
                "rate       {:.2} Mbit/s",
                if span_s > 0.0 {
                    sent_bits / span_s / 1e6
                } else {
                    0.0
                }
            )),
            Line::from(match probability(now) {
                Some(p) => format!("p          {p:.5}"),
                None => "p          –".to_owned(),
            }),
            Line::from(format!("delay      {median:.1} ms, 99 %: {worst:.1} ms")),
            Line::from(format!(
                "dropped    {} ({} by the law), marked {}",
                drops(now),
                now.counts.early_drops + now.counts.forced_drops,
                now.counts.marks
            )),
            Line::from(if picture.lateness_p99_s.is_nan() {
                // No packet has been released within the measurement window.
                "lateness   –".to_owned()
            } else {
                format!("lateness   99 %: {:.0} us", 1e6 * picture.lateness_p99_s)
            }),
        ];
        frame.render_widget(Paragraph::new(lines).block(Block::bordered()), area);
    }
}

/// Returns a text with the delay of a class, and with its drops and marks since `before`, or since
/// the start of the run.
fn class_words(class: &ClassNow, before: Option<&ClassNow>) -> String {
    let [median, _, worst] = class.delay_s.map(|delay_s| 1e3 * delay_s);
    let delay = match median.is_nan() {
        true => "–".to_owned(),
        false => format!("{median:.1} ms, 99 %: {worst:.1} ms"),
    };
    let (drops, marks) = before.map_or((0, 0), |before| (before.drops, before.marks));
    let (dropped, marked) = (class.drops - drops, class.marks - marks);
    format!("delay {delay}, dropped {dropped}, marked {marked}")
}

impl DirectionNow {
    /// Returns the classes that have sent a packet.
    fn shown_classes(&self) -> impl Iterator<Item = &ClassNow> {
        self.classes.iter().filter(|class| class.sent_packets > 0)
    }

    /// Returns the class with this name.
    fn class(&self, name: &str) -> Option<&ClassNow> {
        self.classes.iter().find(|class| class.name == name)
    }

    /// Returns the height of the block that shows the classes, in lines.
    fn class_rows(&self) -> u16 {
        match u16::try_from(self.shown_classes().count()) {
            Ok(0) => 0,
            rows => rows.unwrap_or(u16::MAX - 2) + 2,
        }
    }
}

/// Rounds a value to three significant figures, or to a whole number where it has fewer digits.
fn three_digits(value: f64) -> f64 {
    let unit = 10f64.powf((value.max(100.0).log10().floor() - 2.0).max(0.0));
    (value / unit).round() * unit
}

/// Returns a rate that is rounded to three significant figures.
fn rounded(bps: f64) -> Rate {
    Rate::from_bps(whole_u64(three_digits(bps)))
}

/// Returns the law with another set-point, whose parameter is `key`.
fn at_set_point(law: &LawChoice, key: &str, point: SetPoint) -> Result<LawChoice, ParamError> {
    law.with(key, Value::Text(point.to_string()))
}

/// Draws the largest flows and their shares.
fn flows(frame: &mut Frame, area: Rect, now: &DirectionNow) {
    let rows = usize::from(area.height.saturating_sub(2));
    let lines: Vec<Line> = now
        .flows
        .iter()
        .take(rows)
        .map(|(flow, share)| {
            let bar = "█".repeat(whole_u32((20.0 * share).round()) as usize);
            Line::from(format!("{:<18} {:5.1} % {bar}", name(flow), 100.0 * share))
        })
        .collect();
    let block = Block::bordered().title(" flows by share ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// Returns the name of a flow: protocol and ports.
fn name(flow: &Flow) -> String {
    match flow.protocol {
        TCP => format!("tcp {} → {}", flow.source_port, flow.destination_port),
        UDP => format!("udp {} → {}", flow.source_port, flow.destination_port),
        number => format!("protocol {number}"),
    }
}

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "a test's numbers are small"
)]
mod tests {
    use super::*;
    use forebay_aqm::laws::find;
    use forebay_aqm::Capacity;
    use forebay_scenario::LinkOptions;
    use ratatui::backend::TestBackend;
    use ratatui::Terminal;
    use std::sync::mpsc::{channel, Receiver};

    fn view() -> (View, Receiver<LiveChange>) {
        let text = |text: &str| Value::Text(text.into());
        let target = vec![("target".to_owned(), text("20p"))];
        let options = [
            ("rate".to_owned(), text("10Mbit/s")),
            ("delay".to_owned(), text("10ms")),
            ("buffer".to_owned(), text("100p")),
            ("aqm".to_owned(), text("pi")),
            ("set".to_owned(), Value::Table(target)),
        ];
        let way = Settings::of(&LinkOptions::read(&options, &[]).unwrap())
            .unwrap()
            .up;
        let (changes, requests) = channel();
        let view = View {
            first_laws: [way.law.clone(), way.law.clone()],
            ways: [way.clone(), way],
            mtu: 1500,
            way: 0,
            pictures: VecDeque::new(),
            changes,
            note: String::new(),
        };
        (view, requests)
    }

    fn picture(ms: u64, queue_pkts: u32) -> Picture {
        let mut picture = Picture {
            time: Time::from_nanos(ms * 1_000_000),
            ..Picture::default()
        };
        let now = &mut picture.ways[0];
        (now.law, now.rate_bps, now.queue_pkts) = ("pi".into(), 9.99612e6, queue_pkts);
        (now.set, now.changed) = ("target=20p".into(), true);
        (now.target_pkts, now.probes) = (Some(20.0), vec![("p", 0.0125)]);
        now.counts.arrived_packets = 1;
        now.counts.sent_bytes = 1250 * ms;
        picture
    }

    #[test]
    fn the_view_shows_the_state_of_a_direction() {
        let (mut view, _requests) = view();
        for i in 0..20 {
            view.add(picture(200 * i, i as u32));
        }
        let mut terminal = Terminal::new(TestBackend::new(90, 24)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let cells = terminal.backend().buffer().content();
        let text: String = cells.iter().map(|cell| cell.symbol()).collect();
        for part in [
            "client to server",
            "10Mbit/s under pi (target=20p)   changed",
            "set-point",
            "10.00 Mbit/s",
            "0.01250",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // The view is drawn on a terminal of any size.
        for size in [(1, 1), (20, 3), (40, 9)] {
            let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
            terminal.draw(|frame| view.draw(frame)).unwrap();
        }
    }

    #[test]
    fn the_view_shows_the_classes_that_sent_packets() {
        let (mut view, _requests) = view();
        for i in 1..10 {
            let mut picture = picture(200 * i, 1);
            picture.ways[0].classes = [("l4s", 3), ("classic", 1), ("voice", 0)]
                .map(|(name, packets)| ClassNow {
                    name,
                    sent_packets: packets * i,
                    marks: 5,
                    delay_s: [0.001, 0.002, 0.003],
                    ..ClassNow::default()
                })
                .into();
            view.add(picture);
        }
        let mut terminal = Terminal::new(TestBackend::new(90, 24)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let cells = terminal.backend().buffer().content();
        let text: String = cells.iter().map(|cell| cell.symbol()).collect();
        for part in [
            "classes by share of packets",
            "l4s           75.0 %, delay 1.0 ms, 99 %: 3.0 ms, dropped 0, marked 5",
            "classic       25.0 %, delay",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("voice"), "{text}");
        let class = |marks| ClassNow {
            marks,
            delay_s: [f64::NAN; 3],
            ..ClassNow::default()
        };
        let words = class_words(&class(7), Some(&class(3)));
        assert_eq!(words, "delay –, dropped 0, marked 4");
    }

    #[test]
    fn keys_request_changes() {
        let (mut view, requests) = view();
        view.press(KeyCode::Up, false);
        assert!(
            matches!(requests.try_recv(), Ok(LiveChange::Rate(0, rate)) if rate.as_bps() == 11_000_000)
        );
        assert!(matches!(&view.ways[0].capacity, Capacity::Constant(_)));
        view.press(KeyCode::Tab, false);
        view.press(KeyCode::Right, false);
        let Ok(LiveChange::Law(1, law)) = requests.try_recv() else {
            panic!("no change of the set-point")
        };
        assert_eq!(law.set_point(), Some(SetPoint::Packets(22.0)));
        let mut kinds = vec![];
        for _ in 0..LAWS.len() {
            view.press(KeyCode::Char('l'), false);
            if let Ok(LiveChange::Law(1, law)) = requests.try_recv() {
                kinds.push(law.spec.kind);
            }
        }
        assert!(
            kinds.contains(&"droptail") && kinds.contains(&"pid"),
            "{kinds:?}"
        );
        for (key, control, signal) in [('q', false, Signal::SIGTERM), ('c', true, Signal::SIGINT)] {
            view.press(KeyCode::Char(key), control);
            assert!(matches!(requests.try_recv(), Ok(LiveChange::Stop(sent)) if sent == signal));
        }
    }

    /// Laws have different names for their set-point: Adaptive RED has a `target_delay`.
    #[test]
    fn the_keys_change_the_set_point_of_the_present_law() {
        let (mut view, requests) = view();
        view.ways[0].law = LawChoice::of(find("ared").unwrap(), Vec::new()).unwrap();
        view.press(KeyCode::Right, false);
        let Ok(LiveChange::Law(0, law)) = requests.try_recv() else {
            panic!("no change of the set-point: {}", view.note)
        };
        let longer = SetPoint::Delay(Span::from_micros(5500));
        assert_eq!(law.set_point_param(), Some(("target_delay", longer)));
        assert_eq!(law.in_words(), "target_delay=5.5ms, rest default");
        // A law that can hold a delay takes the set-point over under its own name.
        view.press(KeyCode::Char('l'), false);
        let Ok(LiveChange::Law(0, next)) = requests.try_recv() else {
            panic!("no other law: {}", view.note)
        };
        assert_eq!(next.spec.kind, "pd-red");
        for law in LAWS {
            let choice = LawChoice::of(law, Vec::new()).unwrap();
            let name = choice.set_point_param().map(|(key, _)| key);
            assert_eq!(
                name,
                law.set_point().map(|param| param.name),
                "{}",
                law.kind
            );
        }
    }

    #[test]
    fn rates_have_three_significant_figures() {
        let (mut view, requests) = view();
        for (expected, key) in [
            ("11Mbit/s", KeyCode::Up),
            ("12.1Mbit/s", KeyCode::Up),
            ("13.3Mbit/s", KeyCode::Up),
            ("12.1Mbit/s", KeyCode::Down),
        ] {
            view.press(key, false);
            let Ok(LiveChange::Rate(0, rate)) = requests.try_recv() else {
                panic!("no change of the rate")
            };
            assert_eq!(rate.to_string(), expected);
        }
        assert_eq!(rounded(0.0).as_bps(), 0);
        assert_eq!(rounded(1234.0).as_bps(), 1230);
    }

    #[test]
    fn the_first_law_returns_with_its_first_parameters() {
        let (mut view, _requests) = view();
        let gains = [("a", 0.003), ("b", 0.0029)].map(|(key, it)| (key, Value::Number(it)));
        for (key, gain) in gains {
            view.first_laws[0] = view.first_laws[0].with(key, gain).unwrap();
        }
        view.ways[0].law = view.first_laws[0].clone();
        view.press(KeyCode::Char('l'), false);
        assert_ne!(view.ways[0].law.spec.kind, "pi");
        while view.ways[0].law.spec.kind != "pi" {
            view.press(KeyCode::Char('l'), false);
        }
        assert_eq!(
            view.ways[0].law.in_words(),
            "target=20p, a=0.003, b=0.0029, rest default"
        );
    }

    #[test]
    fn a_line_shows_rate_queue_and_probability() {
        let text = line(&picture(1000, 10), &picture(2000, 30), 0);
        assert!(
            text.contains("10.00 Mbit/s, queue   30 packets, p 0.0125"),
            "{text}"
        );
    }
}
