//! Plain results as Python classes.

/// Declares a frozen class of plain fields, which Python can make and pickle. `Name(subclass)` may
/// be extended.
macro_rules! record {
    (
        $(#[$outer:meta])*
        $name:ident $(($option:ident))? {
            $( $(#[$inner:meta])* $field:ident: $type:ty, )*
        }
    ) => {
        $(#[$outer])*
        #[pyo3::pyclass(frozen, get_all, module = "forebay._native" $(, $option)?)]
        pub struct $name {
            $( $(#[$inner])* pub $field: $type, )*
        }

        #[pyo3::pymethods]
        impl $name {
            #[new]
            #[allow(clippy::too_many_arguments, reason = "one for each field")]
            fn new($($field: $type),*) -> $name {
                $name { $($field),* }
            }

            fn __getnewargs__<'py>(
                slf: &pyo3::Bound<'py, Self>,
            ) -> pyo3::PyResult<pyo3::Bound<'py, pyo3::types::PyTuple>> {
                use pyo3::types::PyAnyMethods;
                let fields = [$( slf.getattr(stringify!($field))? ),*];
                pyo3::types::PyTuple::new(slf.py(), fields)
            }
        }
    };
}

pub(crate) use record;
