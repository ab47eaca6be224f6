//! Does nothing: measures what the tool itself costs.

use crate::configuration::{Configuration, ConfigurationError};
use crate::settings::Operation;

use super::{Draws, Driver, Outcome, Plan};

#[derive(Debug, Clone, Copy)]
enum Action {
    Nothing,
    Key,
    KeyAndValue,
    Error,
    AnotherError,
}

/// The null driver as configured.
#[derive(Debug, Clone)]
pub struct NullPlan {
    actions: Vec<Action>,
}

impl NullPlan {
    /// Reads the operations.
    pub fn read(
        configuration: &Configuration,
        operations: &[Operation],
    ) -> Result<Self, ConfigurationError> {
        let actions = operations
            .iter()
            .map(|operation| {
                action(operation.operation.as_atom().unwrap_or_default()).ok_or_else(|| {
                    configuration.refusal(
                        "operations",
                        &operation.operation,
                        "expected absolutely_nothing, do_something or get (key), \
                         do_something_else, put or update (key and value), an_error or \
                         another_error with the driver null"
                            .to_owned(),
                    )
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { actions })
    }
}

fn action(name: &str) -> Option<Action> {
    match name {
        "absolutely_nothing" => Some(Action::Nothing),
        "do_something" | "get" | "delete" => Some(Action::Key),
        "do_something_else" | "put" | "update" => Some(Action::KeyAndValue),
        "an_error" => Some(Action::Error),
        "another_error" => Some(Action::AnotherError),
        _ => None,
    }
}

impl Plan for NullPlan {
    type Worker = NullDriver;

    fn worker(&self, _id: u32) -> NullDriver {
        NullDriver { plan: self.clone() }
    }
}

/// One worker's null driver.
#[derive(Debug)]
pub struct NullDriver {
    plan: NullPlan,
}

impl Driver for NullDriver {
    async fn connect(&mut self) -> Result<(), String> {
        Ok(())
    }

    async fn run(&mut self, operation: usize, draws: &mut Draws) -> Outcome {
        match self.plan.actions.get(operation) {
            Some(Action::Key) => draws.key().map_or_else(Outcome::from, |_| Outcome::Done),
            Some(Action::KeyAndValue) => match draws.key() {
                Ok(key) => {
                    draws.reads(&key);
                    let value = draws.value(&key);
                    draws.judge(&key, [&value[..]])
                }
                Err(exhausted) => exhausted.into(),
            },
            Some(Action::Error) => Outcome::failed("bad"),
            Some(Action::AnotherError) => Outcome::failed("worse"),
            Some(Action::Nothing) | None => Outcome::Done,
        }
    }
}
