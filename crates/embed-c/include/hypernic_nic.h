/* A NIC model for your program. Generated from crates/embed-c by
 * `cargo run -p hypernic-embed-c --example header`; do not edit.
 *
 * Pass on what the guest does to config space and BARs, call hn_nic_run afterwards until it returns
 * HN_OK (or HN_BLOCKED), hn_nic_receive with frames from the wire, hn_nic_tick when the timer comes.
 * Nothing blocks; the guest is not trusted. examples/embed.c is a whole machine.
 * Link with libhypernic_nic.a or libhypernic_nic.so. */

#ifndef HYPERNIC_NIC_H
#define HYPERNIC_NIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Done; nothing left to do.
#define HN_OK 0

// Done in part: call hn_nic_run again soon.
#define HN_MORE 1

// No room: after hn_nic_run, send had none, call it again when it has; after hn_nic_receive, the
// guest has no buffers, offer the frame again after room was called, or drop it.
#define HN_BLOCKED 2

// An argument is NULL or out of range.
#define HN_INVALID -1

// Called from within a callback of the same NIC, or from two threads at once.
#define HN_BUSY -2

// There is no such model, memory overlaps what is mapped already, or a state cannot be loaded.
#define HN_REFUSED -3

// A bug in this library; do not use the NIC any more.
#define HN_FAILED -4

// A NIC. One thread at a time may use it.
typedef struct hn_nic hn_nic;

// What a NIC needs from the program around it. Every function gets `opaque`; none may call back into
// the same NIC (it would get HN_BUSY). Those marked "may be NULL" may.
typedef struct {
  // Passed to every function.
  void *opaque;
  // Takes a finished frame of `len` bytes, without FCS. false: no room now.
  bool (*send)(void *opaque, const uint8_t *frame, size_t len);
  // Reads `len` bytes of guest memory at `address`. false: nothing there. May be NULL when all
  // memory is mapped by hn_nic_map.
  bool (*dma_read)(void *opaque, uint64_t address, uint8_t *data, size_t len);
  // Writes guest memory. false: nothing there. May be NULL.
  bool (*dma_write)(void *opaque, uint64_t address, const uint8_t *data, size_t len);
  // INTA# has changed to `level`.
  void (*interrupt)(void *opaque, bool level);
  // A message signalled interrupt: write `data` to `address`. May be NULL.
  void (*message)(void *opaque, uint64_t address, uint32_t data);
  // Call hn_nic_tick at `deadline` (nanoseconds of now) if `armed`; else call it off.
  void (*set_timer)(void *opaque, bool armed, uint64_t deadline);
  // Nanoseconds of a clock that never goes backwards.
  uint64_t (*now)(void *opaque);
  // There may be room for frames that hn_nic_receive refused. May be NULL.
  void (*room)(void *opaque);
  // PME# has changed to `asserted`: a frame has come that shall wake the machine. May be
  // NULL.
  void (*pme)(void *opaque, bool asserted);
} hn_host;

// What a bus needs to know of a NIC.
typedef struct {
  // PCI vendor id.
  uint16_t vendor;
  // PCI device id.
  uint16_t device;
  // Bytes of each BAR, 0 for none.
  uint64_t bar_size[6];
  // Which BARs are I/O ports, bit by bit.
  uint8_t io_bars;
} hn_description;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes a NIC: `model` is "e1000", `mac` six bytes, `host` what it needs from the program (copied).
// On HN_OK, `*out` is the NIC, just powered up with its link up; free it with hn_nic_free.
//
// # Safety
// `model` is a C string, `mac` points to six bytes, `host` to a table whose functions may be called
// with its `opaque` until the NIC is freed, `out` to a pointer.
int hn_nic_new(const char *model, const uint8_t *mac, const hn_host *host, hn_nic **out);

// As hn_nic_new, of the model's revision that the NIC was whose state (`len` bytes) is to be loaded
// with hn_nic_load: its guest has started with that. HN_REFUSED: this program does not know it.
//
// # Safety
// As hn_nic_new, and `state` points to `len` bytes.
int hn_nic_new_for(const uint8_t *state,
                   size_t len,
                   const char *model,
                   const uint8_t *mac,
                   const hn_host *host,
                   hn_nic **out);

// Frees a NIC; NULL is allowed. Do not call it from a callback.
//
// # Safety
// `nic` came from hn_nic_new or hn_nic_new_for, and is not used afterwards.
void hn_nic_free(hn_nic *nic);

// Fills `*out` with what the bus needs to know.
//
// # Safety
// `nic` is a living NIC, `out` points to a description.
int hn_nic_describe(hn_nic *nic, hn_description *out);

// Reads `len` bytes of PCI configuration space at `offset`; ones beyond its 256 bytes.
//
// # Safety
// `nic` is a living NIC, `data` points to `len` bytes.
int hn_nic_config_read(hn_nic *nic, uint64_t offset, uint8_t *data, size_t len);

// Writes `len` bytes of PCI configuration space at `offset`. Follow with hn_nic_run.
//
// # Safety
// `nic` is a living NIC, `data` points to `len` bytes.
int hn_nic_config_write(hn_nic *nic, uint64_t offset, const uint8_t *data, size_t len);

// Reads `len` bytes at `offset` of BAR `bar`, any size and alignment.
//
// # Safety
// `nic` is a living NIC, `data` points to `len` bytes.
int hn_nic_read(hn_nic *nic, uint8_t bar, uint64_t offset, uint8_t *data, size_t len);

// Writes `len` bytes at `offset` of BAR `bar`. Follow with hn_nic_run.
//
// # Safety
// `nic` is a living NIC, `data` points to `len` bytes.
int hn_nic_write(hn_nic *nic, uint8_t bar, uint64_t offset, const uint8_t *data, size_t len);

// Does the work that accesses requested: sends at most about `budget` frames, and delivers those that
// waited for buffers. HN_OK: nothing left. HN_MORE: call again soon. HN_BLOCKED: call again when send has room.
//
// # Safety
// `nic` is a living NIC.
int hn_nic_run(hn_nic *nic,
               size_t budget);

// Offers a frame from the wire, without FCS. HN_OK: received, or dropped as the chip drops it.
// HN_BLOCKED: the guest has no buffers.
//
// # Safety
// `nic` is a living NIC, `frame` points to `len` bytes.
int hn_nic_receive(hn_nic *nic, const uint8_t *frame, size_t len);

// The time given to set_timer has come. Follow with hn_nic_run.
//
// # Safety
// `nic` is a living NIC.
int hn_nic_tick(hn_nic *nic);

// Takes the link up or down, as a cable does. Follow with hn_nic_run.
//
// # Safety
// `nic` is a living NIC.
int hn_nic_set_link(hn_nic *nic, bool up);

// The machine was reset.
//
// # Safety
// `nic` is a living NIC.
int hn_nic_reset(hn_nic *nic);

// Saves the whole NIC. `*len` is the room at `data` in bytes and becomes the length of the state;
// HN_BLOCKED: the state needs `*len` bytes, and nothing was written. Call with `*len` 0 to ask.
//
// # Safety
// `nic` is a living NIC, `len` points to a size, `data` to that many bytes.
int hn_nic_save(hn_nic *nic, uint8_t *data, size_t *len);

// Loads what hn_nic_save saved, in this or another process. HN_REFUSED: the state is damaged,
// impossible, of another NIC or from a newer library; the NIC stays unchanged. Follow with
// hn_nic_run.
//
// # Safety
// `nic` is a living NIC, `data` points to `len` bytes.
int hn_nic_load(hn_nic *nic, const uint8_t *data, size_t len);

// Maps `len` bytes of guest memory at `memory`: the NIC uses them without dma_read and dma_write.
// HN_REFUSED: the range is empty, wraps, or overlaps what is mapped.
//
// # Safety
// `nic` is a living NIC; `memory` stays valid until hn_nic_unmap or hn_nic_free.
int hn_nic_map(hn_nic *nic, uint64_t address, void *memory, uint64_t len, bool writable);

// Unmaps exactly what hn_nic_map mapped. Once it returns, the NIC no longer touches the memory.
//
// # Safety
// `nic` is a living NIC.
int hn_nic_unmap(hn_nic *nic, uint64_t address, uint64_t len);

// Calls `visit` with the name and value of each of the NIC's counters.
//
// # Safety
// `nic` is a living NIC; `visit` may be called with `opaque`.
int hn_nic_counters(hn_nic *nic,
                    void (*visit)(void *opaque, const char *name, uint64_t value),
                    void *opaque);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HYPERNIC_NIC_H */
