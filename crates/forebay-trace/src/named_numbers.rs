/// A struct of numbers that know their names, in the order in which tables show them.
macro_rules! named_numbers {
    (
        $(#[$about:meta])*
        pub struct $name:ident[$count:literal] { $($(#[$says:meta])* $number:ident,)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name {
            $($(#[$says])* pub $number: f64,)*
        }

        impl $name {
            /// Returns the names and values, in the order in which tables show them.
            pub fn fields(&self) -> [(&'static str, f64); $count] {
                [$((stringify!($number), self.$number)),*]
            }
        }
    };
}
pub(crate) use named_numbers;
