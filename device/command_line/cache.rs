//! `rnic cache`: what was fetched and built, how large it is, and away with what nobody uses.

use crate::exit::Exit;
use clap::{Args, Subcommand};
use rnic_ci::cache::Cache;
use rnic_ci::cache::inventory::{Entry, Verdict};
use rnic_ci::{Error, Options, StandardError};
use serde_json::json;
use std::path::Path;

#[derive(Debug, Args)]
pub struct CacheOptions {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List what is in the cache, with its size, its last use, and what `clean` would do with it.
    #[command(after_help = "\
Examples:
  rnic cache list
  rnic cache list --json | jq .bytes

The folder is $RNIC_CACHE, or $XDG_CACHE_HOME/rnic, or ~/.cache/rnic.")]
    List {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Remove what is left behind, not referred to, or not used for a while.
    #[command(after_help = "\
Without options it removes what a killed process left half built, package files (they are needed only to unpack them),
trees that no record names, and images and snapshots that nobody has used for the given days. The rest is kept and listed.
It waits for a process that is adding to the cache, and leaves alone what a running program was started from.

Examples:
  rnic cache clean --dry-run           what would go
  rnic cache clean
  rnic cache clean --unused-days 0     also images and snapshots that are not the newest
  rnic cache clean --all               everything; the next run fetches it again

Exit: 0 done; 3 the folder cannot be cleaned, or with --all something in it is in use.")]
    Clean {
        /// Remove everything.
        #[arg(long)]
        all: bool,
        /// Say what would be removed, and remove nothing.
        #[arg(long)]
        dry_run: bool,
        /// Keep images and snapshots that were used in so many days.
        #[arg(long, default_value_t = 30, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(0..=36500))]
        unused_days: u32,
    },
}

pub fn run(options: &CacheOptions) -> Exit {
    match carry_out(&options.what) {
        Ok(text) => crate::output::print("cache", &text),
        Err(error) => {
            tell!("rnic cache: {error}");
            Exit::Environment
        }
    }
}

fn carry_out(what: &What) -> Result<String, Error> {
    let options = Options::from_environment();
    let place = Cache::place(&options);
    // Nobody makes a folder to look into it.
    if let Ok(false) = place.try_exists() {
        return Ok(match what {
            What::List { json: true } => listed_json(&place, &[]),
            What::List { .. } => listed(&place, &[]),
            What::Clean { dry_run, .. } => cleaned(&place, &[], &[], *dry_run),
        });
    }
    let cache = Cache::open(&options)?;
    match what {
        What::List { json } => {
            let entries = cache.inventory(DEFAULT_UNUSED_DAYS)?;
            Ok(if *json { listed_json(cache.folder(), &entries) } else { listed(cache.folder(), &entries) })
        }
        What::Clean { all, dry_run, unused_days } => {
            // What is looked at must not change before it is removed.
            let _lock = cache.lock(&mut StandardError)?;
            let mut entries = cache.inventory(*unused_days)?;
            if *all {
                cache.refuse_if_used()?;
                entries.iter_mut().for_each(|entry| entry.verdict = Verdict::Remove("everything was to go".into()));
            }
            let (gone, kept): (Vec<_>, Vec<_>) =
                entries.into_iter().partition(|entry| matches!(entry.verdict, Verdict::Remove(_)));
            if !dry_run {
                gone.iter().try_for_each(Entry::remove)?;
            }
            Ok(cleaned(cache.folder(), &gone, &kept, *dry_run))
        }
    }
}

const DEFAULT_UNUSED_DAYS: u32 = 30;

fn sum(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| entry.bytes).sum()
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn line(entry: &Entry) -> String {
    let why = match &entry.verdict {
        Verdict::Keep(why) | Verdict::Remove(why) => why,
    };
    format!("{:>12}  {:<48} {why}\n", megabytes(entry.bytes), entry.name)
}

fn listed(folder: &Path, entries: &[Entry]) -> String {
    let mut text = format!("{}\n", folder.display());
    entries.iter().for_each(|entry| text += &line(entry));
    let gone: u64 = entries.iter().filter(|entry| matches!(entry.verdict, Verdict::Remove(_))).map(|e| e.bytes).sum();
    text + &format!("{:>12}  in all; `rnic cache clean` would free {}\n", megabytes(sum(entries)), megabytes(gone))
}

fn listed_json(folder: &Path, entries: &[Entry]) -> String {
    let rows: Vec<_> = entries
        .iter()
        .map(|entry| {
            let (verdict, why) = match &entry.verdict {
                Verdict::Keep(why) => ("keep", why),
                Verdict::Remove(why) => ("remove", why),
            };
            json!({
                "name": entry.name,
                "bytes": entry.bytes,
                "last_used_s": entry.last_used_s(),
                "clean": verdict,
                "reason": why,
            })
        })
        .collect();
    let object = json!({ "schema": "rnic.cache/1", "folder": folder, "bytes": sum(entries), "entries": rows });
    format!("{object}\n")
}

fn cleaned(folder: &Path, gone: &[Entry], kept: &[Entry], dry_run: bool) -> String {
    let verb = if dry_run { "would be removed" } else { "removed" };
    let mut text = format!("{}\n{verb}: {}\n", folder.display(), megabytes(sum(gone)));
    gone.iter().for_each(|entry| text += &line(entry));
    text += &format!("kept: {}\n", megabytes(sum(kept)));
    kept.iter().for_each(|entry| text += &line(entry));
    text
}
