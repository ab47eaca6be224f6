//! The run of a job: a machine that returns its next request and never waits itself.
//!
//! ```text
//!            step()                      the caller
//!   ReadInputs ---------------> lists keys of the bucket or the index
//!      take_keys(keys, last) <-- a page of them
//!   ReadObject(wanted) --------> reads it; others are read at the same time
//!      take_object(ticket, ..) <-
//!   Reduce(reducing) ----------> runs it without blocking others
//!      take_reduced(reduced) <--
//!   Emit(output) --------------> sends it to the client
//!   Wait ----------------------> waits for the next answer, or for the timeout
//!   Done
//! ```
//!
//! Later phases have priority, so inputs are requested only when no other work is left. All terms that wait
//! between phases are counted; the phase that would exceed the job's memory limit ends the job.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::failure::Failure;
use crate::input::Input;
use crate::inputs::Inputs;
use crate::job::Job;
use crate::map_function::{MapError, linked, not_found};
use crate::memory::{Memory, bytes_of};
use crate::object::{BucketName, ReadObject};
use crate::phase::{Phase, Work};
use crate::print::{flat, printed};
use crate::reduce_function::ReduceFunction;
use crate::term::Term;

/// The most objects that are read at a time.
pub const OBJECTS_AT_A_TIME_MAX: usize = 64;

/// The number of inputs waiting for the first phase above which no further ones are requested.
const WAITING_INPUTS_MAX: usize = 1000;

/// The most results of an output.
const OUTPUT_RESULTS_MAX: usize = 100;

/// The most terms to which a reduce function is applied in place; for more, the caller applies it.
const REDUCED_IN_PLACE_TERMS_MAX: usize = 10_000;

/// The next request or result of a job.
#[derive(Debug)]
pub enum Next {
    /// A page of keys, for [`Execution::take_keys`].
    ReadInputs,
    /// An object, for [`Execution::take_object`].
    ReadObject(Wanted),
    /// Work that may take long, for [`Execution::take_reduced`].
    Reduce(Reducing),
    /// Results for the client.
    Emit(Output),
    /// Nothing, until a request is answered.
    Wait,
    /// The end: all results are returned.
    Done,
}

/// An object that a phase needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The number for its answer.
    pub ticket: u64,
    /// The object's bucket.
    pub bucket: BucketName,
    /// Its key.
    pub key: Bytes,
}

/// Results of a kept phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The phase, from 0.
    pub phase: usize,
    /// Some of its results, at least one.
    pub results: Vec<Term>,
}

/// A reduce function, with the terms of its phase.
#[derive(Debug)]
pub struct Reducing {
    phase: usize,
    function: ReduceFunction,
    held: Vec<Term>,
}

/// Its result.
#[derive(Debug)]
pub struct Reduced {
    phase: usize,
    bytes_before: usize,
    results: Result<Vec<Term>, String>,
}

impl Reducing {
    /// Applies the function.
    pub fn run(self) -> Reduced {
        Reduced {
            phase: self.phase,
            bytes_before: bytes_of(&self.held),
            results: self.function.apply(self.held),
        }
    }
}

/// A running job.
#[derive(Debug)]
pub struct Execution {
    inputs: InputSource,
    stages: Vec<Stage>,
    reading: BTreeMap<u64, (usize, Input)>,
    tickets: u64,
    outputs: VecDeque<Output>,
    memory: Memory,
    shows_inputs: bool,
    failure: Option<Failure>,
}

#[derive(Debug)]
struct InputSource {
    from: Inputs,
    /// The index of the next of the keys that the client has named.
    next_key: usize,
    asked: bool,
    ended: bool,
}

#[derive(Debug)]
struct Stage {
    phase: Phase,
    waiting: VecDeque<Term>,
    /// The terms of a reduce phase: results of its function, then inputs.
    held: Vec<Term>,
    /// The number of inputs among them.
    unreduced: usize,
    reading: usize,
    reduced_once: bool,
    /// The terms are with the caller.
    is_reducing: bool,
    ended: bool,
}

impl Execution {
    /// A job at its start, with its memory limit in bytes ([`crate::JOB_BYTES_MAX`]).
    pub fn new(job: Job, bytes_max: usize) -> Self {
        Self {
            shows_inputs: job.shows_inputs(),
            inputs: InputSource {
                from: job.inputs,
                next_key: 0,
                asked: false,
                ended: false,
            },
            stages: job.phases.into_iter().map(Stage::new).collect(),
            reading: BTreeMap::new(),
            tickets: 0,
            outputs: VecDeque::new(),
            memory: Memory::new(bytes_max),
            failure: None,
        }
    }

    /// The source of the inputs.
    pub fn inputs(&self) -> &Inputs {
        &self.inputs.from
    }

    /// The job's present memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.memory.used()
    }

    /// The next request or result of the job.
    ///
    /// # Errors
    ///
    /// The job has failed; later calls return the same error.
    pub fn step(&mut self) -> Result<Next, Failure> {
        match &self.failure {
            Some(failure) => Err(failure.clone()),
            None => {
                let next = self.advance();
                self.noted(next)
            }
        }
    }

    /// Adds keys of the bucket or the index; `last` if there are no more.
    pub fn take_keys(&mut self, keys: Vec<Bytes>, last: bool) -> Result<(), Failure> {
        assert!(
            self.inputs.asked,
            "keys are taken in when they were asked for"
        );
        self.inputs.asked = false;
        self.inputs.ended = last;
        let taken = self.feed_keys(keys);
        self.noted(taken)
    }

    /// Adds a requested object; none if it does not exist.
    pub fn take_object(&mut self, ticket: u64, object: Option<ReadObject>) -> Result<(), Failure> {
        let asked = self.reading.remove(&ticket);
        let Some((index, input)) = asked else {
            // The job has failed meanwhile, or the object is a duplicate.
            return Ok(());
        };
        self.stages[index].reading -= 1;
        let taken = self.take_for(index, &input, object.map(Arc::new).as_ref());
        self.noted(taken)
    }

    /// Takes the result of a reduce function.
    pub fn take_reduced(&mut self, reduced: Reduced) -> Result<(), Failure> {
        self.stages[reduced.phase].is_reducing = false;
        let taken = self.take_results(reduced);
        self.noted(taken)
    }

    /// Ends the job because a requested object could not be read.
    pub fn object_failed(&mut self, ticket: u64, error: String) -> Failure {
        let failure = match self.reading.remove(&ticket) {
            Some((phase, input)) => Failure::Read {
                phase,
                error,
                input: printed(&input.term()),
            },
            None => Failure::Inputs { error },
        };
        self.end(failure)
    }

    /// Ends the job because its time limit has passed.
    pub fn time_out(&mut self) -> Failure {
        self.end(Failure::Timeout)
    }

    /// Ends the job because its inputs could not be read.
    pub fn inputs_failed(&mut self, error: String) -> Failure {
        self.end(Failure::Inputs { error })
    }

    fn end(&mut self, failure: Failure) -> Failure {
        self.failure.get_or_insert(failure).clone()
    }

    fn noted<T>(&mut self, result: Result<T, Failure>) -> Result<T, Failure> {
        result.map_err(|failure| self.end(failure))
    }

    fn advance(&mut self) -> Result<Next, Failure> {
        loop {
            if let Some(output) = self.full_output() {
                return Ok(Next::Emit(output));
            }
            if let Some(next) = self.advance_stages()? {
                return Ok(next);
            }
            if self.wants_inputs() && !self.feed_named_keys()? {
                self.inputs.asked = true;
                return Ok(Next::ReadInputs);
            }
            if self.moved_on()? {
                continue;
            }
            if let Some(output) = self.pop_output() {
                return Ok(Next::Emit(output));
            }
            return Ok(if self.has_ended() {
                Next::Done
            } else {
                Next::Wait
            });
        }
    }

    /// True if some work could be done without an answer.
    fn moved_on(&mut self) -> Result<bool, Failure> {
        let more_named = matches!(self.inputs.from, Inputs::Keys(_)) && self.wants_inputs();
        Ok(self.end_stages()? || more_named || self.has_work())
    }

    fn has_work(&self) -> bool {
        let room = self.reading.len() < OBJECTS_AT_A_TIME_MAX;
        let works = |it: &Stage| match it.phase.work {
            _ if it.waiting.is_empty() => false,
            Work::Reduce(..) => !it.is_reducing,
            _ => room,
        };
        self.stages.iter().any(works)
    }

    fn has_ended(&self) -> bool {
        self.inputs.ended && self.stages.iter().all(|it| it.ended)
    }

    fn wants_inputs(&self) -> bool {
        let room = self
            .stages
            .first()
            .is_none_or(|it| it.waiting.len() < WAITING_INPUTS_MAX);
        !self.inputs.ended && !self.inputs.asked && room
    }

    /// Feeds keys named by the client; false if the keys have to be listed.
    fn feed_named_keys(&mut self) -> Result<bool, Failure> {
        let Inputs::Keys(keys) = &self.inputs.from else {
            return Ok(false);
        };
        let from = self.inputs.next_key;
        let to = keys.len().min(from + WAITING_INPUTS_MAX);
        let inputs = keys[from..to].iter().map(Input::term).collect();
        self.inputs.next_key = to;
        self.inputs.ended = to == keys.len();
        self.feed(inputs)?;
        Ok(true)
    }

    fn feed_keys(&mut self, keys: Vec<Bytes>) -> Result<(), Failure> {
        let mut inputs = Vec::with_capacity(keys.len());
        for key in keys {
            if self.passes(&key)? {
                inputs.push(self.input_of(key).term());
            }
        }
        self.feed(inputs)
    }

    fn passes(&self, key: &Bytes) -> Result<bool, Failure> {
        let Inputs::Filtered(_, filters) = &self.inputs.from else {
            return Ok(true);
        };
        // Riak's process that lists the keys fails, with one error for all failures of a filter.
        filters.passes(key).map_err(|reason| Failure::Filter {
            error: "function_clause".to_string(),
            input: flat(&Term::pair(Term::Binary(key.clone()), Term::atom(reason))),
        })
    }

    fn input_of(&self, key: Bytes) -> Input {
        let bucket = match &self.inputs.from {
            Inputs::Bucket(bucket) | Inputs::Filtered(bucket, _) => bucket,
            Inputs::Index(range) => &range.bucket,
            Inputs::Keys(_) => unreachable!("keys that the client has named are not listed"),
        };
        Input {
            bucket: bucket.clone(),
            key,
            data: None,
        }
    }

    /// Gives inputs to the first phase. Without phases they are results.
    fn feed(&mut self, inputs: Vec<Term>) -> Result<(), Failure> {
        if self.stages.is_empty() {
            return self.put_out(0, inputs);
        }
        self.memory.take(0, bytes_of(&inputs))?;
        self.stages[0].waiting.extend(inputs);
        Ok(())
    }

    /// Gives a phase's results to the client and to the next phase.
    fn deliver(&mut self, index: usize, results: Vec<Term>) -> Result<(), Failure> {
        let next = index + 1;
        if next == self.stages.len() {
            return if self.stages[index].phase.keep {
                self.put_out(index, results)
            } else {
                Ok(())
            };
        }
        if self.stages[index].phase.keep {
            self.put_out(index, results.clone())?;
        }
        self.memory.take(index, bytes_of(&results))?;
        self.stages[next].waiting.extend(results);
        Ok(())
    }

    fn put_out(&mut self, phase: usize, results: Vec<Term>) -> Result<(), Failure> {
        let results: Vec<Term> = if self.shows_inputs {
            results.into_iter().map(shown_input).collect()
        } else {
            results
        };
        self.memory.take(phase, bytes_of(&results))?;
        let mut results = results.into_iter().peekable();
        while results.peek().is_some() {
            let room = self.room_in_output(phase);
            room.extend(results.by_ref().take(OUTPUT_RESULTS_MAX - room.len()));
        }
        Ok(())
    }

    /// The last output of the phase if it has room, or a new one.
    fn room_in_output(&mut self, phase: usize) -> &mut Vec<Term> {
        let has_room = |it: &Output| it.phase == phase && it.results.len() < OUTPUT_RESULTS_MAX;
        let index = match self.outputs.iter().rposition(has_room) {
            Some(index) => index,
            None => {
                self.outputs.push_back(Output {
                    phase,
                    results: Vec::new(),
                });
                self.outputs.len() - 1
            }
        };
        &mut self.outputs[index].results
    }

    fn full_output(&mut self) -> Option<Output> {
        let full = |it: &Output| it.results.len() >= OUTPUT_RESULTS_MAX;
        if self.outputs.front().is_some_and(full) {
            return self.pop_output();
        }
        None
    }

    fn pop_output(&mut self) -> Option<Output> {
        let output = self.outputs.pop_front()?;
        self.memory.give(bytes_of(&output.results));
        Some(output)
    }

    fn advance_stages(&mut self) -> Result<Option<Next>, Failure> {
        for index in (0..self.stages.len()).rev() {
            let next = match self.stages[index].phase.work {
                Work::Reduce(function, batch) => self.reduce_waiting(index, function, batch)?,
                _ => self.ask_for_object(index)?,
            };
            if next.is_some() {
                return Ok(next);
            }
        }
        Ok(None)
    }

    fn ask_for_object(&mut self, index: usize) -> Result<Option<Next>, Failure> {
        if self.reading.len() >= OBJECTS_AT_A_TIME_MAX {
            return Ok(None);
        }
        let Some(term) = self.stages[index].waiting.pop_front() else {
            return Ok(None);
        };
        self.memory.give(term.bytes());
        if matches!(self.stages[index].phase.work, Work::Source) {
            return Err(Failure::Source {
                phase: index,
                input: printed(&term),
            });
        }
        let input = Input::from_term(&term).ok_or_else(|| Failure::Map {
            phase: index,
            error: "badarg".to_string(),
            input: printed(&term),
        })?;
        Ok(Some(Next::ReadObject(self.wanted(index, input))))
    }

    fn wanted(&mut self, index: usize, input: Input) -> Wanted {
        let ticket = self.tickets;
        self.tickets += 1;
        let wanted = Wanted {
            ticket,
            bucket: input.bucket.clone(),
            key: input.key.clone(),
        };
        self.stages[index].reading += 1;
        self.reading.insert(ticket, (index, input));
        wanted
    }

    fn take_for(
        &mut self,
        index: usize,
        input: &Input,
        object: Option<&Arc<ReadObject>>,
    ) -> Result<(), Failure> {
        let results = match &self.stages[index].phase.work {
            Work::Map(function, argument) => function
                .apply(object, input, argument)
                .map_err(|error| map_failure(index, error, object, input))?,
            Work::Link(bucket, tag) => linked(object, bucket.as_ref(), tag.as_ref()),
            Work::Reduce(..) | Work::Source => unreachable!("these phases read no objects"),
        };
        self.deliver(index, results)
    }

    /// Lets a reduce phase process its waiting inputs.
    ///
    /// If the function's results are larger than a batch, as for a sort, it waits for as many
    /// inputs. Riak sorts all of them again for every 20; the results are the same.
    fn reduce_waiting(
        &mut self,
        index: usize,
        function: ReduceFunction,
        batch: usize,
    ) -> Result<Option<Next>, Failure> {
        if self.stages[index].is_reducing {
            return Ok(None);
        }
        while let Some(input) = self.stages[index].waiting.pop_front() {
            let stage = &mut self.stages[index];
            stage.held.push(input);
            stage.unreduced += 1;
            if stage.unreduced >= batch.max(stage.held.len() / 2)
                && let Some(next) = self.reduce(index, function)?
            {
                return Ok(Some(next));
            }
        }
        match self.is_to_be_reduced_at_the_end(index) {
            true => self.reduce(index, function),
            false => Ok(None),
        }
    }

    /// Applies the function to all terms of the phase, or leaves this to the caller.
    fn reduce(&mut self, phase: usize, function: ReduceFunction) -> Result<Option<Next>, Failure> {
        let stage = &mut self.stages[phase];
        let held = std::mem::take(&mut stage.held);
        stage.unreduced = 0;
        stage.reduced_once = true;
        stage.is_reducing = held.len() > REDUCED_IN_PLACE_TERMS_MAX;
        let reducing = Reducing {
            phase,
            function,
            held,
        };
        if self.stages[phase].is_reducing {
            return Ok(Some(Next::Reduce(reducing)));
        }
        self.take_results(reducing.run())?;
        Ok(None)
    }

    fn take_results(&mut self, reduced: Reduced) -> Result<(), Failure> {
        let phase = reduced.phase;
        let results = reduced
            .results
            .map_err(|error| Failure::Reduce { phase, error })?;
        self.memory.give(reduced.bytes_before);
        self.memory.take(phase, bytes_of(&results))?;
        self.stages[phase].held = results;
        Ok(())
    }

    /// True if a reduce phase has all inputs and its function has not been applied to all of them.
    /// A phase without any input applies it once, to nothing: the count is then 0.
    fn is_to_be_reduced_at_the_end(&self, index: usize) -> bool {
        let (stage, before) = (&self.stages[index], &self.stages[..index]);
        let gets_no_more = self.inputs.ended && before.iter().all(|it| it.ended);
        let has_more_to_do = stage.unreduced > 0 || !stage.reduced_once;
        gets_no_more && has_more_to_do && matches!(stage.phase.work, Work::Reduce(..))
    }

    /// Ends the phases that have all inputs; true if one has ended, or has to be reduced first.
    fn end_stages(&mut self) -> Result<bool, Failure> {
        let mut before_ended = self.inputs.ended;
        for index in 0..self.stages.len() {
            let stage = &self.stages[index];
            let is_busy = !stage.waiting.is_empty() || stage.reading > 0 || stage.is_reducing;
            if !before_ended || is_busy {
                return Ok(false);
            }
            if self.is_to_be_reduced_at_the_end(index) {
                return Ok(true);
            }
            if !stage.ended {
                self.end_stage(index)?;
                return Ok(true);
            }
            before_ended = true;
        }
        Ok(false)
    }

    /// Passes on the terms of a reduce phase.
    fn end_stage(&mut self, index: usize) -> Result<(), Failure> {
        self.stages[index].ended = true;
        let held = std::mem::take(&mut self.stages[index].held);
        self.memory.give(bytes_of(&held));
        self.deliver(index, held)
    }
}

impl Stage {
    fn new(phase: Phase) -> Self {
        Self {
            phase,
            waiting: VecDeque::new(),
            held: Vec::new(),
            unreduced: 0,
            reading: 0,
            reduced_once: false,
            is_reducing: false,
            ended: false,
        }
    }
}

/// An input as clients see it.
fn shown_input(term: Term) -> Term {
    Input::from_term(&term).map_or(term, |it| it.listed())
}

fn map_failure(
    phase: usize,
    error: MapError,
    object: Option<&Arc<ReadObject>>,
    input: &Input,
) -> Failure {
    let given = match object {
        None => Term::Tuple(vec![not_found(), input.place(), input.data_term()]),
        Some(object) => Term::Tuple(vec![
            Term::atom("ok"),
            Term::Object(Arc::clone(object)),
            input.data_term(),
        ]),
    };
    let input = printed(&given);
    match error {
        MapError::NonListResult => Failure::NonListResult { phase, input },
        MapError::Raised(error) => Failure::Map {
            phase,
            error,
            input,
        },
    }
}
