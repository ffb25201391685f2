//! Forms of a key that accelerators have prepared for themselves.

use core::any::Any;
use core::fmt;
use std::sync::OnceLock;

/// The forms of a key that accelerators have prepared for themselves, at most one of each type.
///
/// A form is made once and is shared by all threads. A process that is forked later inherits it. It
/// is dropped with the key, and wipes itself then.
#[derive(Default)]
pub struct Forms {
    /// A list, since a form that has been given out must not move: mostly there is one.
    first: OnceLock<Box<Node>>,
}

struct Node {
    form: Box<dyn Any + Send + Sync>,
    next: Forms,
}

impl Forms {
    /// The form of type `T`; `None` if it has not been made.
    pub fn get<T: Any>(&self) -> Option<&T> {
        let node = self.first.get()?;
        node.form.downcast_ref().or_else(|| node.next.get())
    }

    /// The form of type `T`, made now if it has not been.
    pub fn get_or_make<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        let mut make = Some(make);
        let mut forms = self;
        loop {
            let node = forms.first.get_or_init(|| {
                let make = make
                    .take()
                    .expect("a form that was just made is returned below");
                Box::new(Node {
                    form: Box::new(make()),
                    next: Forms::default(),
                })
            });
            if let Some(form) = node.form.downcast_ref() {
                return form;
            }
            forms = &node.next;
        }
    }
}

impl fmt::Debug for Forms {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Forms").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[derive(Debug, PartialEq)]
    struct One(u32);
    #[derive(Debug, PartialEq)]
    struct Other(u32);

    #[test]
    fn each_accelerator_finds_its_own_form() {
        let forms = Forms::default();
        assert_eq!(forms.get::<One>(), None);
        assert_eq!(forms.get_or_make(|| One(1)), &One(1));
        assert_eq!(forms.get_or_make(|| Other(2)), &Other(2));
        assert_eq!(forms.get_or_make(|| One(3)), &One(1), "made once");
        assert_eq!(forms.get(), Some(&Other(2)));
    }

    #[test]
    fn threads_share_what_one_of_them_makes() {
        let forms = Arc::new(Forms::default());
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let forms = forms.clone();
                thread::spawn(move || match number % 2 {
                    0 => forms.get_or_make(|| One(number)).0,
                    _ => forms.get_or_make(|| Other(number)).0,
                })
            })
            .collect();
        let numbers: Vec<u32> = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect();
        for pair in numbers.windows(3) {
            assert_eq!(pair[0], pair[2]);
        }
    }

    #[test]
    fn forms_are_dropped_with_the_key() {
        let form = Arc::new(());
        let forms = Forms::default();
        forms.get_or_make(|| form.clone());
        drop(forms);
        assert_eq!(Arc::strong_count(&form), 1);
    }
}
