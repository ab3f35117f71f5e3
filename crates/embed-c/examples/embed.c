/* A machine with a NIC in C: memory, a wire that prints, and a driver that sends a frame and gets
 * one. Build it beside the library:
 *   cc -I crates/embed-c/include crates/embed-c/examples/embed.c target/release/libhypernic_nic.a \
 *      -lpthread -ldl -lm -o embed
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hypernic_nic.h"

static uint8_t ram[65536];

static bool in_ram(uint64_t address, size_t len) {
  return address <= sizeof ram && len <= sizeof ram - address;
}

static bool on_send(void *machine, const uint8_t *frame, size_t len) {
  (void)machine;
  printf("sent %zu bytes of type %02x%02x: %.5s\n", len, frame[12], frame[13],
         (const char *)frame + 14);
  return true;
}

static bool on_read(void *machine, uint64_t address, uint8_t *data, size_t len) {
  (void)machine;
  if (in_ram(address, len)) memcpy(data, ram + address, len);
  return in_ram(address, len);
}

static bool on_write(void *machine, uint64_t address, const uint8_t *data, size_t len) {
  (void)machine;
  if (in_ram(address, len)) memcpy(ram + address, data, len);
  return in_ram(address, len);
}

static void on_interrupt(void *machine, bool level) {
  (void)machine;
  printf("INTA# %s\n", level ? "asserted" : "released");
}

static void on_timer(void *machine, bool armed, uint64_t deadline) {
  (void)machine, (void)armed, (void)deadline; /* this driver delays no interrupt */
}

static uint64_t on_now(void *machine) {
  (void)machine;
  return 0;
}

static void check(int status) {
  if (status != HN_OK) {
    fprintf(stderr, "hypernic says %d\n", status);
    exit(1);
  }
}

/* The NIC is little-endian, and so is every machine this example is run on. */
static void set(hn_nic *nic, uint64_t offset, uint32_t value) {
  check(hn_nic_write(nic, 0, offset, (const uint8_t *)&value, sizeof value));
  check(hn_nic_run(nic, 256));
}

static uint32_t get(hn_nic *nic, uint64_t offset) {
  uint32_t value;
  check(hn_nic_read(nic, 0, offset, (uint8_t *)&value, sizeof value));
  return value;
}

int main(void) {
  static const uint8_t mac[6] = {2, 0, 0, 0, 0, 1};
  static const uint8_t frame[20] = "\xff\xff\xff\xff\xff\xff\2\0\0\0\0\1\x88\xb5hello";
  const hn_host host = {.send = on_send,
                        .dma_read = on_read,
                        .dma_write = on_write,
                        .interrupt = on_interrupt,
                        .set_timer = on_timer,
                        .now = on_now};
  hn_nic *nic;
  check(hn_nic_new("e1000", mac, &host, &nic));
  hn_description is;
  check(hn_nic_describe(nic, &is));
  printf("%04x:%04x, %llu bytes of registers\n", is.vendor, is.device,
         (unsigned long long)is.bar_size[0]);
  const uint8_t command[2] = {0x06, 0x00}; /* decode memory, master the bus */
  check(hn_nic_config_write(nic, 0x04, command, sizeof command));
  set(nic, 0x0000, 0x40); /* CTRL: link up */
  set(nic, 0x00d0, 0x81); /* IMS: a frame came, a descriptor is done */

  /* Transmit: one descriptor at 1000h, its buffer at 2000h, EOP | IFCS | RS. */
  const uint64_t tx[2] = {0x2000, 0x0b000000 | sizeof frame};
  memcpy(ram + 0x1000, tx, sizeof tx);
  memcpy(ram + 0x2000, frame, sizeof frame);
  set(nic, 0x3800, 0x1000); /* TDBAL */
  set(nic, 0x3808, 128);    /* TDLEN */
  set(nic, 0x0400, 0x0a);   /* TCTL: enable, pad */
  set(nic, 0x3818, 1);      /* TDT */
  printf("sent: %d, causes %x\n", ram[0x100c] & 1, get(nic, 0x00c0) & 0x81);

  /* Receive: a ring at 3000h, one buffer at 4000h. */
  const uint64_t rx[2] = {0x4000, 0};
  memcpy(ram + 0x3000, rx, sizeof rx);
  set(nic, 0x2800, 0x3000);     /* RDBAL */
  set(nic, 0x2808, 128);        /* RDLEN */
  set(nic, 0x2818, 1);          /* RDT */
  set(nic, 0x0100, 0x04008002); /* RCTL: enable, broadcast, strip the FCS */
  check(hn_nic_receive(nic, frame, sizeof frame));
  printf("received: %d, causes %x, %.5s\n", ram[0x300c] & 1, get(nic, 0x00c0) & 0x81,
         (const char *)ram + 0x400e);
  hn_nic_free(nic);
  return 0;
}
