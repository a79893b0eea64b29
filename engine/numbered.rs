//! Objects by the numbers that the driver chose.

use crate::numbers::{Cqn, Eqn, Qpn, Srqn};
use crate::queues::{CompletionQueue, EventQueue, QueuePair, SharedReceiveQueue};

/// The table of one kind of object; its size is bounded by whoever checks the numbers.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    objects: Vec<Option<Box<T>>>,
    count: usize,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { objects: Vec::new(), count: 0 }
    }
}

impl<T> Numbered<T> {
    fn get_at(&self, index: usize) -> Option<&T> {
        self.objects.get(index)?.as_deref()
    }

    fn get_mut_at(&mut self, index: usize) -> Option<&mut T> {
        self.objects.get_mut(index)?.as_deref_mut()
    }

    fn insert_at(&mut self, index: usize, object: T) {
        if self.objects.len() <= index {
            self.objects.resize_with(index + 1, || None);
        }
        if self.objects[index].replace(Box::new(object)).is_none() {
            self.count += 1;
        }
    }

    fn remove_at(&mut self, index: usize) -> Option<Box<T>> {
        let object = self.objects.get_mut(index)?.take();
        self.count -= usize::from(object.is_some());
        object
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// The objects that exist, with their numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let objects = self.objects.iter().enumerate();
        objects.filter_map(|(number, object)| object.as_deref().map(|object| (number as u32, object)))
    }
}

macro_rules! by_number {
    ($object:ty, $number:ty) => {
        impl Numbered<$object> {
            pub fn get(&self, number: $number) -> Option<&$object> {
                self.get_at(number.index())
            }

            pub fn get_mut(&mut self, number: $number) -> Option<&mut $object> {
                self.get_mut_at(number.index())
            }

            pub fn insert(&mut self, number: $number, object: $object) {
                self.insert_at(number.index(), object);
            }

            pub fn remove(&mut self, number: $number) -> Option<Box<$object>> {
                self.remove_at(number.index())
            }
        }
    };
}

by_number!(QueuePair, Qpn);
by_number!(CompletionQueue, Cqn);
by_number!(EventQueue, Eqn);
by_number!(SharedReceiveQueue, Srqn);
