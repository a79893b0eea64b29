//! Two guests whose ports are up, and programs that run in both.

use super::{endings, limit, shell};
use crate::bench::fabric::Fabric;
use crate::bench::laboratory;
use rnic_ci::Lab;
use rnic_ci::guest::{AdapterFunction, Guest, GuestSpec};

/// The TCP port by which ibverbs-utils and perftest exchange addresses, as /proc/net/tcp prints it.
const EXCHANGE_PORT: &str = ":4853";

/// A guest whose port is up: its address is 10.0.0.`node`.
pub fn start(lab: &Lab, name: &str, node: u8, adapter: Vec<AdapterFunction>) -> Guest {
    let mut guest = laboratory::guest(lab, &GuestSpec { adapter, ..GuestSpec::without_adapter(name) });
    bring_up(&mut guest, node);
    guest
}

/// The same, which can be rebooted.
pub fn boot(lab: &Lab, name: &str, node: u8, adapter: Vec<AdapterFunction>) -> Guest {
    let spec = GuestSpec { adapter, cold_boot: true, ..GuestSpec::without_adapter(name) };
    let mut guest = laboratory::guest(lab, &spec);
    bring_up(&mut guest, node);
    guest
}

/// Gives the port its address.
pub fn bring_up(guest: &mut Guest, node: u8) {
    let address = format!("ip addr add 10.0.0.{node}/24 dev eth0 && ip link set eth0 up");
    shell(guest, &format!("until {address}; do usleep 20000; done"));
    shell(guest, &format!("until {}; do usleep 20000; done", is_up()));
}

/// A shell condition: the RDMA device is there, and its port has its address.
pub fn is_up() -> &'static str {
    "ibv_devinfo -d rnic0 | grep -q PORT_ACTIVE && grep -q :0a00:00 /sys/class/infiniband/rnic0/ports/1/gids/1"
}

/// Starts a program that shell commands to come can wait for, or kill.
fn in_background(program: &str) -> String {
    format!("({program} >/tmp/out 2>&1 </dev/null & echo $! >/tmp/pid; wait $!; echo $? >/tmp/code) &")
}

pub struct Guests<'f> {
    pub fabric: &'f Fabric,
    pub server: Guest,
    pub client: Guest,
}

impl<'f> Guests<'f> {
    pub fn start(lab: &Lab, fabric: &'f Fabric) -> Guests<'f> {
        let [server, client] = [("A", 1), ("B", 2)].map(|(name, node)| start(lab, name, node, fabric.functions(name)));
        Guests { fabric, server, client }
    }

    /// Both halves run, in the background.
    pub fn load(&mut self, program: &str) {
        self.serve(program);
        shell(&mut self.client, &format!("rm -f /tmp/code; {}", in_background(&format!("{program} 10.0.0.1"))));
    }

    /// Starts the server's half, and waits until it listens, or has ended.
    pub fn serve(&mut self, program: &str) {
        shell(&mut self.server, &format!("rm -f /tmp/code; {}", in_background(program)));
        let listens = format!("grep -qs '{EXCHANGE_PORT} .* 0A ' /proc/net/tcp /proc/net/tcp6 || [ -e /tmp/code ]");
        shell(&mut self.server, &format!("until {listens}; do usleep 20000; done"));
    }

    /// Runs a program in both guests, the client with the server's address behind it, and gives exit numbers and output.
    pub fn run(&mut self, program: &str) -> ([i32; 2], [String; 2]) {
        self.serve(program);
        self.join(&format!("{program} 10.0.0.1"))
    }

    /// Runs both halves, each for a limited time, the client's when a shell condition holds for the server; whatever becomes of them.
    pub fn attempt(&mut self, server: &str, listens: &str, client: &str) -> ([i32; 2], [String; 2]) {
        shell(
            &mut self.server,
            &format!("rm -f /tmp/code; {}", in_background(&format!("timeout 50 sh -c '{server}'"))),
        );
        shell(&mut self.server, &format!("until {listens} || [ -e /tmp/code ]; do usleep 20000; done"));
        self.join(&format!("timeout 40 sh -c '{client}'"))
    }

    /// Programs of connection management: the server listens on a device, not on a socket. Both succeed.
    #[track_caller]
    pub fn connect(&mut self, server: &str, client: &str) {
        shell(&mut self.server, &format!("rm -f /tmp/code; {}", in_background(server)));
        let listens = "rdma resource show cm_id | grep -q LISTEN || [ -e /tmp/code ]";
        shell(&mut self.server, &format!("until {listens}; do usleep 20000; done"));
        let (codes, printed) = self.join(client);
        assert_eq!(codes, [0, 0], "{server} and {client}: {printed:?}");
        println!("{client}: {}", printed[1].lines().last().unwrap_or_default());
    }

    /// Two programs that listen on a socket for each other; both succeed.
    #[track_caller]
    pub fn succeed_with(&mut self, server: &str, client: &str) {
        self.serve(server);
        let (codes, printed) = self.join(client);
        assert_eq!(codes, [0, 0], "{server} and {client}: {printed:?}");
        println!("{client}: {}", printed[1].lines().rfind(|line| line.contains(char::is_numeric)).unwrap_or_default());
    }

    /// The client's half, and both ends.
    fn join(&mut self, client: &str) -> ([i32; 2], [String; 2]) {
        let (code, output) = self.client.shell(&format!("{client} 2>&1"), limit()).expect("the client's shell");
        let ended = shell(&mut self.server, "until [ -s /tmp/code ]; do usleep 20000; done; cat /tmp/code");
        let printed = shell(&mut self.server, "cat /tmp/out");
        let ended = ended.parse().expect("an exit number");
        ([ended, code], [printed, String::from_utf8_lossy(&output).into_owned()])
    }

    /// The same, and both succeed; gives what the client printed.
    #[track_caller]
    pub fn succeed(&mut self, program: &str) -> String {
        let (codes, [server, client]) = self.run(program);
        assert_eq!(codes, [0, 0], "{program}\nserver:\n{server}\nclient:\n{client}");
        println!("{program}: {}", client.lines().rfind(|line| line.contains(char::is_numeric)).unwrap_or_default());
        client
    }

    #[track_caller]
    pub fn end(self) {
        for mut guest in [self.server, self.client] {
            endings::check(self.fabric, &mut guest);
        }
    }
}
