//! What a guest is told: the scenario as it was read, and which run of it to make.

use forebay_scenario::{
    DesignedGains, Inputs, LawChoice, LinkPlace, Options, Reading, Relink, Scenario, ScenarioError,
};
use forebay_units::{Bytes, Rate, Span, Value};
use serde::{Deserialize, Serialize};

/// A scenario's text with all that was chosen on top of it, and one run. Host and guest read it by
/// the same code, so that both know the same scenario.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Orders {
    pub text: String,
    /// Name of the scenario in errors.
    pub file: String,
    pub sets: Vec<(String, String)>,
    pub laws: Vec<String>,
    pub without_own_laws: bool,
    /// A link, another one, and the usual packet in bytes.
    pub link: Option<(Place, Place, u64)>,
    /// Files that the scenario names; each lies beside the orders under its number.
    pub files: Vec<String>,
    /// What the point sets, in the order of the sweep's keys.
    pub row: Vec<Json>,
    /// Gains that were designed at the point: number of the law, and parameters.
    pub gains: Vec<(usize, Vec<(String, Json)>)>,
    /// Number of the law among those that run.
    pub law: usize,
    pub seed: u64,
    /// The queue, where it is the kernel's own; otherwise it is ours.
    pub qdisc: Option<Qdisc>,
    /// The guest's kernel takes several system calls at one time.
    #[serde(default)]
    pub several_calls: bool,
    /// Folder of the scenario, where programs run.
    pub folder: String,
}

/// A link: its rate in bit/s, and its delay in ns.
type Place = (u64, u64);

/// A queue of the kernel's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qdisc {
    /// In the words of tc(8).
    pub words: String,
    /// It has a rate of its own, and needs no shaper.
    pub shapes: bool,
}

/// A value of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Json {
    Boolean(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Json>),
    Table(Vec<(String, Json)>),
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Json {
        match value {
            Value::Flag(it) => Json::Boolean(*it),
            Value::Integer(it) => Json::Integer(*it),
            Value::Number(it) => Json::Float(*it),
            Value::Text(it) => Json::Text(it.clone()),
            Value::List(items) => Json::List(items.iter().map(Json::from).collect()),
            Value::Table(fields) => {
                let field = |(name, value): &(String, Value)| (name.clone(), Json::from(value));
                Json::Table(fields.iter().map(field).collect())
            }
        }
    }
}

impl From<&Json> for Value {
    fn from(value: &Json) -> Value {
        match value {
            Json::Boolean(it) => Value::Flag(*it),
            Json::Integer(it) => Value::Integer(*it),
            Json::Float(it) => Value::Number(*it),
            Json::Text(it) => Value::Text(it.clone()),
            Json::List(items) => Value::List(items.iter().map(Value::from).collect()),
            Json::Table(fields) => {
                let field = |(name, value): &(String, Json)| (name.clone(), Value::from(value));
                Value::Table(fields.iter().map(field).collect())
            }
        }
    }
}

impl Orders {
    /// The run of a law at a point with a seed. `row` is what the point sets.
    ///
    /// # Errors
    /// A text that is not UTF-8, which no scenario is.
    pub fn of(
        inputs: &Inputs,
        row: &[(String, Value)],
        gains: &[DesignedGains],
        law: usize,
        seed: u64,
    ) -> Result<Orders, String> {
        let options = &inputs.options;
        let text = std::str::from_utf8(&inputs.text).map_err(|error| error.to_string())?;
        let place = |at: LinkPlace| (at.rate.as_bps(), at.delay.as_nanos());
        let link = options.link.as_ref();
        let params = |of: &DesignedGains| {
            let params = of.params.iter();
            let params = params.map(|(name, value)| (name.clone(), Json::from(value)));
            (of.law, params.collect())
        };
        Ok(Orders {
            text: text.to_owned(),
            file: inputs.file.clone(),
            sets: options.sets.clone(),
            laws: options.laws.clone(),
            without_own_laws: options.without_own_laws,
            link: link.map(|it| (place(it.from), place(it.to), it.packet.0)),
            files: inputs.files.iter().map(|(name, _)| name.clone()).collect(),
            row: row.iter().map(|(_, value)| Json::from(value)).collect(),
            gains: gains.iter().map(params).collect(),
            law,
            seed,
            qdisc: None,
            several_calls: false,
            folder: "/".to_owned(),
        })
    }

    /// The scenario at the point, and its law; `contents` gives the file with a number.
    ///
    /// # Errors
    /// A text that the host had not read; both are then of different versions.
    pub fn read(
        &self,
        contents: impl Fn(usize) -> Vec<u8>,
    ) -> Result<(Scenario, LawChoice), ScenarioError> {
        let options = Options {
            sets: self.sets.clone(),
            laws: self.laws.clone(),
            without_own_laws: self.without_own_laws,
            link: self.link.map(relink),
            programs: true,
            ..Options::default()
        };
        let mut reading = Reading::new(self.text.as_bytes(), &self.file, options)?;
        for (number, name) in self.files.iter().enumerate() {
            reading.add_file(name.clone(), contents(number));
        }
        let points = reading.points_at(vec![self.row.iter().map(Value::from).collect()])?;
        let gains: Vec<DesignedGains> = self.gains.iter().map(designed).collect();
        let mut experiment = reading.experiment(&points, |_| &gains)?;
        let mut point = experiment.points.swap_remove(0);
        let law = point.laws.swap_remove(self.law);
        Ok((point.scenario, law))
    }
}

fn designed((law, params): &(usize, Vec<(String, Json)>)) -> DesignedGains {
    let param = |(name, value): &(String, Json)| (name.clone(), Value::from(value));
    DesignedGains {
        law: *law,
        params: params.iter().map(param).collect(),
    }
}

fn relink((from, to, packet_bytes): (Place, Place, u64)) -> Relink {
    let place = |(rate_bps, delay_ns): Place| LinkPlace {
        rate: Rate::from_bps(rate_bps),
        delay: Span::from_nanos(delay_ns),
    };
    Relink {
        from: place(from),
        to: place(to),
        packet: Bytes(packet_bytes),
    }
}
