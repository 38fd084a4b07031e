//! The registry of queue disciplines.
//!
//! A new discipline needs a file in `disciplines/`, a `mod` line, and a line in the list below.

use forebay_linux_tc::{Tc, TcSite};
use forebay_units::{one_of, ParamError, ParamSpec, ParamValues, Params, QueueSite, Value};

use crate::discipline::{Discipline, DisciplineParams, DisciplineSpec, LawFactory, Packet};
use crate::law_spec::LawSpec;

pub(crate) mod cake;
pub(crate) mod dualpi2;
pub(crate) mod fifo;
pub(crate) mod fq;
pub(crate) mod priority;

macro_rules! disciplines {
    ($($module:ident: $params:ident;)*) => {
        /// Every discipline, in the order in which tables show them; the first is the default.
        pub const DISCIPLINES: &[DisciplineSpec] =
            &[ $( DisciplineSpec::of::<$module::$params>() ),* ];

        /// The parameters of a registered discipline, checked and complete.
        #[allow(
            clippy::enum_variant_names,
            reason = "a variant has the name of the type that it holds"
        )]
        #[derive(Clone)]
        pub(crate) enum QueueParams {
            $( $params($module::$params), )*
        }

        impl QueueParams {
            /// Reads the parameters of `spec` from `values`; the others have their defaults.
            pub fn read(
                spec: &DisciplineSpec,
                values: &ParamValues,
            ) -> Result<QueueParams, ParamError> {
                $(
                    if spec.kind == <$module::$params as DisciplineParams>::KIND {
                        return $module::$params::read(values).map(QueueParams::$params);
                    }
                )*
                unreachable!("every specification is registered")
            }

            /// Returns the value of every parameter.
            pub fn values(&self) -> Vec<(&'static str, Value)> {
                match self {
                    $( QueueParams::$params(params) => values_of(params), )*
                }
            }

            /// Returns [`DisciplineParams::per_flow`].
            pub fn per_flow(&self) -> bool {
                match self {
                    $( QueueParams::$params(params) => params.per_flow(), )*
                }
            }

            /// Returns [`DisciplineParams::own_limit`].
            pub fn own_limit(&self) -> Option<u32> {
                match self {
                    $( QueueParams::$params(params) => params.own_limit(), )*
                }
            }

            /// Calls [`DisciplineParams::tc`].
            pub fn tc(&self, tc: &mut Tc, site: &TcSite) -> Result<(), ParamError> {
                match self {
                    $( QueueParams::$params(params) => params.tc(tc, site), )*
                }
            }

            /// Builds the queue, whose methods are called dynamically.
            pub fn build<P: Packet + Send + 'static>(
                &self,
                site: &QueueSite,
                laws: LawFactory,
            ) -> Result<Box<dyn Discipline<P>>, ParamError> {
                match self {
                    $( QueueParams::$params(params) => params.build(site, laws), )*
                }
            }
        }
    };
}

disciplines! {
    fifo: FifoParams;
    priority: PriorityParams;
    fq: FqParams;
    dualpi2: DualPi2Params;
    cake: CakeParams;
}

/// Returns the value of every parameter of `params`.
fn values_of<D: Params>(params: &D) -> Vec<(&'static str, Value)> {
    let value = |spec: &ParamSpec| Some((spec.name, params.get(spec.name)?));
    D::SPECS.iter().filter_map(value).collect()
}

/// Returns the discipline named `kind`.
///
/// # Errors
/// If no discipline has this name. The text lists the registered kinds, with the one of the most
/// similar spelling as a suggestion.
pub fn find(kind: &str) -> Result<&'static DisciplineSpec, String> {
    let spec = DISCIPLINES.iter().find(|spec| spec.kind == kind);
    spec.ok_or_else(|| {
        let kinds: Vec<&str> = DISCIPLINES.iter().map(|spec| spec.kind).collect();
        one_of(&kinds, kind)
    })
}

/// Returns the discipline that holds `law` by default.
pub fn of_law(law: &LawSpec) -> &'static DisciplineSpec {
    let spec = DISCIPLINES.iter().find(|spec| spec.kind == law.queue);
    spec.unwrap_or(&DISCIPLINES[0])
}

/// Returns the parameters that a user can set for `law`: those of the discipline that holds it by
/// default, and its own. A name that both declare belongs to the discipline.
pub fn keys(law: &LawSpec) -> Vec<&'static ParamSpec> {
    let queue = of_law(law).params.iter();
    let own = law.params.iter();
    queue
        .chain(own.filter(|own| of_law(law).params.iter().all(|key| key.name != own.name)))
        .collect()
}
