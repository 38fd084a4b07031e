//! Orders of a guest: the scenario, and the run of it to carry out.

use forebay_scenario::{
    DesignedGains, Inputs, LawChoice, LinkPlace, Options, Reading, Relink, Scenario, ScenarioError,
};
use forebay_units::{Bytes, Rate, Span, Value};
use serde::{Deserialize, Serialize};

/// The text of a scenario with all options, and one run of it. Host and guest read the scenario
/// with the same code, so that both have the same one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Orders {
    /// The text of the scenario.
    pub text: String,
    /// The name of the scenario in error messages.
    pub file: String,
    /// The options `--set`: key and value of each.
    pub sets: Vec<(String, String)>,
    /// The laws that replace those of the scenario.
    pub laws: Vec<String>,
    /// True if the laws of the scenario itself are left out.
    pub without_own_laws: bool,
    /// The link of the scenario, the link that replaces it, and the size of a packet in bytes.
    pub link: Option<(Place, Place, u64)>,
    /// The names of the scenario's files. The contents are in the folder of the orders, in files
    /// that are named by number.
    pub files: Vec<String>,
    /// The values of the sweep's keys at the point, in the order of the keys.
    pub row: Vec<Json>,
    /// Gains that were designed at the point: the number of a law, and its parameters.
    pub gains: Vec<(usize, Vec<(String, Json)>)>,
    /// The number of the run's law among the laws of the point.
    pub law: usize,
    /// The seed of the run.
    pub seed: u64,
    /// The qdisc of the kernel under test; `None` where the queue is one of this workspace.
    pub qdisc: Option<Qdisc>,
    /// True if the guest's kernel accepts several system calls at a time.
    #[serde(default)]
    pub several_calls: bool,
    /// The folder of the scenario, where programs run.
    pub folder: String,
}

/// The rate of a link in bit/s, and its delay in ns.
type Place = (u64, u64);

/// A queueing discipline of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qdisc {
    /// Its kind and its parameters in the words of tc(8).
    pub words: String,
    /// True if it has a rate of its own and needs no shaper.
    pub shapes: bool,
}

/// A value of a scenario in the JSON of the orders.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Json {
    /// True or false.
    Boolean(bool),
    /// An integer.
    Integer(i64),
    /// A number that is not an integer.
    Float(f64),
    /// A text.
    Text(String),
    /// A list of values.
    List(Vec<Json>),
    /// Keys with their values.
    Table(Vec<(String, Json)>),
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Json {
        match value {
            Value::Flag(flag) => Json::Boolean(*flag),
            Value::Integer(number) => Json::Integer(*number),
            Value::Number(number) => Json::Float(*number),
            Value::Text(text) => Json::Text(text.clone()),
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
            Json::Boolean(flag) => Value::Flag(*flag),
            Json::Integer(number) => Value::Integer(*number),
            Json::Float(number) => Value::Number(*number),
            Json::Text(text) => Value::Text(text.clone()),
            Json::List(items) => Value::List(items.iter().map(Value::from).collect()),
            Json::Table(fields) => {
                let field = |(name, value): &(String, Json)| (name.clone(), Value::from(value));
                Value::Table(fields.iter().map(field).collect())
            }
        }
    }
}

impl Orders {
    /// Returns the orders for a run of the law with the number `law` at a point of a sweep. `row`
    /// has the keys and values of the point, `gains` the gains that were designed there.
    ///
    /// # Errors
    /// The scenario's text is not UTF-8.
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
        let params = |designed: &DesignedGains| {
            let params = designed.params.iter();
            let params = params.map(|(name, value)| (name.clone(), Json::from(value)));
            (designed.law, params.collect())
        };
        Ok(Orders {
            text: text.to_owned(),
            file: inputs.file.clone(),
            sets: options.sets.clone(),
            laws: options.laws.clone(),
            without_own_laws: options.without_own_laws,
            link: link.map(|relink| (place(relink.from), place(relink.to), relink.packet.0)),
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

    /// Reads the scenario at the point of the run, and the law. `contents` returns the contents of
    /// the scenario's file with a number.
    ///
    /// # Errors
    /// The scenario is wrong. The host has read it before, so an error means that host and
    /// guest have different versions.
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

/// Returns designed gains from their form in the orders.
fn designed((law, params): &(usize, Vec<(String, Json)>)) -> DesignedGains {
    let param = |(name, value): &(String, Json)| (name.clone(), Value::from(value));
    DesignedGains {
        law: *law,
        params: params.iter().map(param).collect(),
    }
}

/// Returns a change of the link from its form in the orders.
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
