//! Defining exported C functions.

/// `export! { fn [name, alias, …](arguments) -> result { body } … }`: defines
/// an exported C function under each name. The body may do what the program's
/// own arguments allow the kernel to do.
macro_rules! export {
    () => {};
    (fn [$name:ident $(, $alias:ident)*] $arguments:tt -> $result:ty $body:block $($rest:tt)*) => {
        export! { @one $name $arguments $result $body }
        $(export! { @alias $alias $name $arguments $result })*
        export! { $($rest)* }
    };
    (fn $name:ident $arguments:tt -> $result:ty $body:block $($rest:tt)*) => {
        export! { @one $name $arguments $result $body }
        export! { $($rest)* }
    };
    (@alias $alias:ident $name:ident ($($argument:ident: $kind:ty),* $(,)?) $result:ty) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $alias($($argument: $kind),*) -> $result {
            // SAFETY: the same function by another name.
            unsafe { $name($($argument),*) }
        }
    };
    (@one $name:ident ($($argument:ident: $kind:ty),* $(,)?) $result:ty $body:block) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            // SAFETY: the program vouches for its arguments, as it would to the kernel.
            #[allow(unused_unsafe)]
            unsafe { $body }
        }
    };
}
