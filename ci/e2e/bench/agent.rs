//! The hidden `rnic guest-agent` in guests that the test itself has started: orders as JSON lines.

use super::fabric::{Fabric, Watch};
use super::laboratory;
use super::program;
use rnic_ci::Lab;
use rnic_ci::deadline::Deadline;
use rnic_ci::guest::{Guest, GuestSpec};
use rnic_shim::transaction::{Role, TransactionSpec};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const LONGEST_ANSWER: usize = 1 << 20;

/// A guest in which the agent runs.
pub struct Agent {
    pub guest: Guest,
}

impl Agent {
    /// Starts the guest and the agent in it.
    pub fn start(lab: &Lab, spec: &GuestSpec) -> Agent {
        Agent::run_in(laboratory::guest(lab, spec))
    }

    /// Starts the agent in a guest that runs.
    pub fn run_in(mut guest: Guest) -> Agent {
        let path = guest.send_payload(Path::new(program::PATH)).expect("the program fits into the guest");
        guest.run(&format!("{path} guest-agent")).expect("the agent starts");
        Agent { guest }
    }

    pub fn say(&self, order: &Value) {
        let deadline = Deadline::new(format!("{} takes an order", self.guest.name()), LIMIT);
        self.guest.exchange().send(format!("{order}\n").as_bytes(), &deadline).expect("an order is sent");
    }

    #[track_caller]
    pub fn hear(&self, order: &Value) -> Value {
        let deadline = Deadline::new(format!("{} obeys {order}", self.guest.name()), LIMIT);
        let line = self.guest.exchange().receive_line(LONGEST_ANSWER, &deadline).expect("an answer");
        let mut answer: Value = serde_json::from_str(&line).expect("an answer in JSON");
        match answer.get_mut("ok") {
            Some(value) => value.take(),
            None => panic!("{} refused {order}: {line}", self.guest.name()),
        }
    }

    #[track_caller]
    pub fn order(&self, order: Value) -> Value {
        self.say(&order);
        self.hear(&order)
    }

    #[track_caller]
    pub fn open(&self, spec: &TransactionSpec, role: Role) -> Value {
        self.order(json!({ "order": "open", "spec": spec, "role": role }))["endpoint"].clone()
    }

    #[track_caller]
    pub fn connect(&self, peer: &Value) {
        self.order(json!({ "order": "connect", "peer": peer }));
    }

    pub fn step(&self, name: &str) -> Value {
        self.order(json!({ "order": name }))
    }
}

/// Brings both agents up, towards each other.
pub fn bring_up(requester: &Agent, responder: &Agent, spec: &TransactionSpec) {
    let requester_spec = TransactionSpec { armed: false, ..spec.clone() };
    let own = requester.open(&requester_spec, Role::Requester);
    let peer = responder.open(spec, Role::Responder);
    responder.connect(&own);
    requester.connect(&peer);
    responder.order(json!({ "order": "ready", "flush": false }));
    requester.order(json!({ "order": "ready", "flush": false }));
}

/// Runs the operation to its verified end.
#[track_caller]
pub fn operate(requester: &Agent, responder: &Agent) {
    let wait = json!({ "order": "wait" });
    responder.say(&wait);
    requester.step("post");
    requester.step("wait");
    responder.hear(&wait);
    for agent in [requester, responder] {
        let verified = agent.step("verify");
        assert_eq!(verified["faults"], json!([]), "{}", agent.guest.name());
    }
}

/// Watches both adapters of a fabric.
pub fn watch(fabric: &Fabric) -> [Watch<'_>; 2] {
    ["A", "B"].map(|name| fabric.watch(name))
}
