//! The driver `null`, which does nothing: measures the cost of the tool itself.

use crate::configuration::{Configuration, ConfigurationError};
use crate::settings::Operation;

use super::{Draws, Driver, Ended, Outcome, Plan, actions};
use kvorum_erlang_terms::Term;

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
        let actions = actions(configuration, operations, action)?;
        Ok(Self { actions })
    }
}

fn action(operation: &Term) -> Result<Action, String> {
    match operation.as_atom().unwrap_or_default() {
        "absolutely_nothing" => Ok(Action::Nothing),
        "do_something" | "get" | "delete" => Ok(Action::Key),
        "do_something_else" | "put" | "update" => Ok(Action::KeyAndValue),
        "an_error" => Ok(Action::Error),
        "another_error" => Ok(Action::AnotherError),
        _ => Err(
            "expected absolutely_nothing, do_something or get (key), do_something_else, put or \
             update (key and value), an_error or another_error with the driver null"
                .to_owned(),
        ),
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

    async fn run(&mut self, operation: usize, draws: &mut Draws) -> Ended {
        match self.plan.actions.get(operation) {
            Some(Action::Key) => drop(draws.key()?),
            Some(Action::KeyAndValue) => {
                let key = draws.key()?;
                draws.reads(&key);
                let value = draws.value(&key);
                return Ok(draws.judge(&key, [&value[..]]));
            }
            Some(Action::Error) => return Err(Outcome::failed("bad")),
            Some(Action::AnotherError) => return Err(Outcome::failed("worse")),
            Some(Action::Nothing) | None => {}
        }
        Ok(Outcome::Done)
    }
}
