// Owns the emulated machine's clockwork: fibers, the order in which they run, barriers, and faults.
#include "emulator.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#if !defined(__x86_64__)
#error "the emulator's fibers are written for x86-64"
#endif

// Saves what the ABI asks a callee to keep, then continues on the other stack.
extern "C" void mettle_emu_switch(void** save, void* load);
__asm__(
    ".text\n.globl mettle_emu_switch\n.type mettle_emu_switch,@function\nmettle_emu_switch:\n"
    " push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    " mov %rsp,(%rdi)\n mov %rsi,%rsp\n"
    " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");

// What clang calls to round to bfloat where the processor cannot: nearest, ties to even, NaN stays NaN.
extern "C" __bf16 __truncsfbf2(float value) {
  uint32_t bits = __builtin_bit_cast(uint32_t, value);
  uint16_t out = value != value ? (uint16_t)((bits >> 16) | 64) : (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  return __builtin_bit_cast(__bf16, out);
}

namespace emu {
thread_local Thread* current;
static thread_local void* bad_address;

static void to_scheduler() { mettle_emu_switch(&current->stack_pointer, current->group->scheduler); }

void fail(const char* format, ...) {
  Threadgroup& group = *current->group;
  int at = snprintf(group.message, group.message_bytes, "threadgroup (%u, %u, %u), thread %u: ", group.position.x,
                    group.position.y, group.position.z, current->index);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(group.message + at, group.message_bytes - at, format, arguments);
  va_end(arguments);
  group.failed = true;
  to_scheduler();
  abort();  // a failed threadgroup is never resumed
}

void meet(void* slot, void (*collective)(Simdgroup&), Site site) {
  Simdgroup& simdgroup = *current->simdgroup;
  if (simdgroup.live != simdgroup.size) fail("%s:%d: simdgroup operation after a lane has returned", site.file, site.line);
  if (simdgroup.arrived && (simdgroup.collective != collective || simdgroup.site.line != site.line)) {
    fail("%s:%d: simdgroup divergence: another lane is at %s:%d", site.file, site.line, simdgroup.site.file, simdgroup.site.line);
  }
  simdgroup.slot[current->lane] = slot;
  simdgroup.collective = collective;
  simdgroup.site = site;
  simdgroup.mask |= 1u << current->lane;
  if (++simdgroup.arrived < simdgroup.size) {
    current->state = State::AtSimd;
    to_scheduler();
    return;
  }
  collective(simdgroup);
  simdgroup.arrived = simdgroup.mask = 0;
  for (uint32_t lane = 0; lane < simdgroup.size; lane++) simdgroup.lanes[lane]->state = State::Ready;
  // In lockstep the last to come does not run ahead of the others.
  if (current->group->lockstep) to_scheduler();
}

void barrier(int flags, Site site) {
  Threadgroup& group = *current->group;
  if (group.live != group.size) fail("%s:%d: threadgroup_barrier after a thread has returned", site.file, site.line);
  if (group.arrived && (group.site.line != site.line || group.flags != flags)) {
    fail("%s:%d: barrier divergence: another thread is at %s:%d", site.file, site.line, group.site.file, group.site.line);
  }
  group.site = site;
  group.flags = flags;
  if (++group.arrived < group.size) {
    current->state = State::AtBarrier;
    to_scheduler();
    return;
  }
  // mem_threadgroup is what makes writes visible: without it nothing may have been written since the last such barrier.
  if (group.memory) {
    if (flags & 2) memcpy(group.snapshot, group.memory, group.memory_bytes);
    else if (memcmp(group.snapshot, group.memory, group.memory_bytes) != 0)
      fail("%s:%d: threadgroup memory was written before a barrier without mem_threadgroup", site.file, site.line);
  }
  group.arrived = 0;
  for (uint32_t index = 0; index < group.size; index++) group.all[index].state = State::Ready;
  if (group.lockstep) to_scheduler();
}

void copy_begin(void* to, const void* from, Site site) {
  Thread& me = *current;
  if (((uintptr_t)to | (uintptr_t)from) % 16) fail("%s:%d: an asynchronous copy off its 16-byte boundary", site.file, site.line);
  if (me.copy_count == kMostCopies) fail("%s:%d: more than %u asynchronous copies under way", site.file, site.line, kMostCopies);
  memset(to, 0xff, 16);
  me.copies[me.copy_count++] = {to, from, me.commits};
}

void copies_commit() { current->commits++; }

void copies_wait(uint32_t pending) {
  Thread& me = *current;
  // Let others run into the poison.
  if (me.copy_count) to_scheduler();
  uint32_t kept = 0;
  for (uint32_t i = 0; i < me.copy_count; i++) {
    Copy copy = me.copies[i];
    if (copy.commits + pending >= me.commits) me.copies[kept++] = copy;
    else if (copy.from) memcpy(copy.to, copy.from, 16);
    else memset(copy.to, 0, 16);
  }
  me.copy_count = kept;
}

static void thread_main() {
  Thread& me = *current;
  me.group->entry(me);
  if (me.copy_count) fail("returned with %u asynchronous copies under way", me.copy_count);
  me.state = State::Done;
  me.simdgroup->live--;
  me.group->live--;
  if (me.group->arrived) fail("returned while others wait at %s:%d", me.group->site.file, me.group->site.line);
  if (me.simdgroup->arrived) fail("returned while other lanes wait at %s:%d", me.simdgroup->site.file, me.simdgroup->site.line);
  to_scheduler();
  abort();  // a finished thread is never resumed
}

#if defined(MSL_FLAT)
constexpr size_t kStackBytes = 512 << 10;  // AddressSanitizer's red zones
#else
constexpr size_t kStackBytes = 64 << 10;
#endif
constexpr uint64_t kStackMark = 0x6d6574746c65656dULL;

// All that one OS thread needs to run threadgroups one after another.
struct Worker {
  Threadgroup group;
  uint32_t seed;
  char* stacks;
  size_t stacks_bytes;
  Thread* threads;
  Simdgroup* simdgroups;
  Copy* copies;
  size_t copies_bytes;
  char* memory_map;
  size_t memory_map_bytes;
};

static uint32_t random_next(uint64_t& state) {
  state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return (uint32_t)(state >> 33);
}

static void shuffle(uint32_t* order, uint32_t count, uint64_t& state) {
  for (uint32_t left = count; left > 1; left--) {
    uint32_t pick = random_next(state) % left, last = order[left - 1];
    order[left - 1] = order[pick];
    order[pick] = last;
  }
}

static void reset(Worker& worker) {
  Threadgroup& group = worker.group;
  group.live = group.size;
  group.arrived = 0;
  group.failed = false;
  if (group.memory) {
    // All ones is NaN in every float type.
    memset(group.memory, 0xff, group.memory_bytes);
    memset(group.snapshot, 0xff, group.memory_bytes);
  }
  for (uint32_t index = 0; index < group.size; index++) {
    Simdgroup& simdgroup = worker.simdgroups[index / 32];
    if (index % 32 == 0) memset(&simdgroup, 0, sizeof simdgroup);
    Thread& one = worker.threads[index];
    one = {nullptr, &simdgroup, &group, index % 32, index, {}, State::Ready, worker.copies + (size_t)index * kMostCopies, 0, 0};
    one.position = {index % group.threads.x, index / group.threads.x % group.threads.y,
                    index / group.threads.x / group.threads.y};
    simdgroup.lanes[one.lane] = &one;
    simdgroup.size = simdgroup.live = one.lane + 1;
    char* stack = worker.stacks + (size_t)index * kStackBytes;
    memcpy(stack, &kStackMark, sizeof kStackMark);
    void** top = (void**)(stack + kStackBytes - 64);
    *--top = nullptr;
    *--top = (void*)thread_main;
    one.stack_pointer = top - 6;
  }
}

static void resume(Threadgroup& group, Thread& one) {
  current = &one;
  mettle_emu_switch(&group.scheduler, one.stack_pointer);
  current = nullptr;
}

// Seed 0 runs all threads from one meeting point to the next, in order. Other seeds run one simdgroup as far as it goes
// before the next, in an order that changes every round, as do its lanes: what lacks a barrier reads stale or poison.
static void schedule(Worker& worker, uint64_t random) {
  Threadgroup& group = worker.group;
  uint32_t simdgroups = (group.size + 31) / 32;
  uint32_t order[32], lanes[32];
  for (uint32_t k = 0; k < 32; k++) order[k] = lanes[k] = k;
  while (group.live && !group.failed) {
    bool ran = false;
    if (worker.seed) shuffle(order, simdgroups, random);
    for (uint32_t k = 0; k < simdgroups && !group.failed; k++) {
      Simdgroup& simdgroup = worker.simdgroups[order[k]];
      bool again;
      do {
        again = false;
        if (worker.seed) shuffle(lanes, 32, random);
        for (uint32_t j = 0; j < 32 && !group.failed; j++) {
          if (lanes[j] >= simdgroup.size || simdgroup.lanes[lanes[j]]->state != State::Ready) continue;
          ran = true;
          again = worker.seed != 0;
          resume(group, *simdgroup.lanes[lanes[j]]);
        }
      } while (again && !group.failed);
    }
    if (ran || group.failed) continue;
    for (uint32_t index = 0; index < group.size; index++) {
      Thread& one = worker.threads[index];
      if (one.state == State::Done) continue;
      Site at = one.state == State::AtSimd ? one.simdgroup->site : group.site;
      snprintf(group.message, group.message_bytes,
               "threadgroup (%u, %u, %u): deadlock: thread %u waits at %s:%d for threads that never come", group.position.x,
               group.position.y, group.position.z, index, at.file, at.line);
      break;
    }
    group.failed = true;
  }
}

static struct sigaction earlier_segv, earlier_bus;

static void bad_access() { fail("out of bounds: access to address %p, outside of every buffer", bad_address); }

// Sends a fiber that touched unmapped memory to `bad_access`; all other faults go to whoever was there before.
static void on_fault(int number, siginfo_t* info, void* context) {
  if (!current) {
    sigaction(number, number == SIGSEGV ? &earlier_segv : &earlier_bus, nullptr);
    return;
  }
  bad_address = info->si_addr;
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  char* stack = (char*)registers[REG_RSP] - 256;  // past the red zone
  registers[REG_RSP] = (greg_t)(((uintptr_t)stack & ~(uintptr_t)15) - 8);
  registers[REG_RIP] = (greg_t)bad_access;
}

static void catch_faults() {
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &earlier_segv);
  sigaction(SIGBUS, &action, &earlier_bus);
}

static char* map(size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : (char*)at;
}
}  // namespace emu

using namespace emu;

extern "C" void mettle_emu_init() { catch_faults(); }

extern "C" Worker* mettle_emu_worker_new(void (*entry)(Thread&), void* const* buffers, size_t memory_bytes,
                                         const uint32_t* grid, const uint32_t* threads, uint32_t seed) {
  Worker* worker = (Worker*)calloc(1, sizeof(Worker));
  Threadgroup& group = worker->group;
  group.entry = entry;
  group.buffers = buffers;
  group.grid = {grid[0], grid[1], grid[2]};
  group.threads = {threads[0], threads[1], threads[2]};
  group.size = threads[0] * threads[1] * threads[2];
  group.lockstep = seed == 0;
  worker->seed = seed;
  worker->threads = (Thread*)calloc(group.size, sizeof(Thread));
  group.all = worker->threads;
  worker->simdgroups = (Simdgroup*)calloc((group.size + 31) / 32, sizeof(Simdgroup));
  worker->stacks_bytes = group.size * kStackBytes;
  worker->stacks = map(worker->stacks_bytes);
  worker->copies_bytes = group.size * kMostCopies * sizeof(Copy);
  worker->copies = (Copy*)map(worker->copies_bytes);
  if (memory_bytes) {
    group.memory_bytes = memory_bytes;
    group.snapshot = malloc(memory_bytes);
#if defined(MSL_FLAT)
    if (posix_memalign(&group.memory, 128, memory_bytes)) abort();  // AddressSanitizer guards what malloc gives
#else
    // The end lies against a page that may not be touched.
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t body = (memory_bytes + page - 1) / page * page;
    worker->memory_map_bytes = body + page;
    worker->memory_map = map(worker->memory_map_bytes);
    mprotect(worker->memory_map + body, page, PROT_NONE);
    group.memory = worker->memory_map + body - (memory_bytes + 15) / 16 * 16;
#endif
  }
  return worker;
}

extern "C" int mettle_emu_worker_run(Worker* worker, const uint32_t* position, char* message, size_t message_bytes) {
  Threadgroup& group = worker->group;
  group.position = {position[0], position[1], position[2]};
  group.message = message;
  group.message_bytes = message_bytes;
  reset(*worker);
  uint64_t random = worker->seed * 0x9e3779b97f4a7c15ULL + position[0] * 7919ULL + position[1] * 104729ULL + position[2];
  schedule(*worker, random);
  for (uint32_t index = 0; index < group.size && !group.failed; index++) {
    if (memcmp(worker->stacks + (size_t)index * kStackBytes, &kStackMark, sizeof kStackMark) == 0) continue;
    snprintf(message, message_bytes, "thread %u needs more than %zu bytes of stack", index, kStackBytes);
    group.failed = true;
  }
  return group.failed;
}

extern "C" void mettle_emu_worker_free(Worker* worker) {
  munmap(worker->stacks, worker->stacks_bytes);
  munmap(worker->copies, worker->copies_bytes);
  if (worker->memory_map) munmap(worker->memory_map, worker->memory_map_bytes);
#if defined(MSL_FLAT)
  free(worker->group.memory);
#endif
  free(worker->group.snapshot);
  free(worker->threads);
  free(worker->simdgroups);
  free(worker);
}
