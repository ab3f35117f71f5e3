//! The daemon as a process: its commands.
#![forbid(unsafe_code)]

mod cli_cells;
mod cli_cells_chips;
mod cli_config;
mod cli_control;
mod cli_crash;
mod cli_crash_igb;
mod cli_crash_rtl;
mod cli_crash_virtio;
mod cli_deaths;
mod cli_descriptors;
mod cli_errors;
mod cli_fair;
mod cli_guards;
mod cli_keeper;
mod cli_life;
mod cli_many;
mod cli_moves;
mod cli_networks;
mod cli_pktgen;
mod cli_sandbox;
mod cli_service;
mod cli_store;
mod cli_streams;
mod cli_upgrade;
mod cli_varlinkctl;
mod installed;
mod pages;
mod waiting;
