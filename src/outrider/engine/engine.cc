// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/engine.h"

#include <algorithm>
#include <chrono>

#include "outrider/base/check.h"
#include "outrider/base/cpu.h"
#include "outrider/engine/cpu_device.h"
#include "outrider/engine/embedding_rows.h"
#include "outrider/engine/head_work.h"
#include "outrider/engine/layers.h"
#include "outrider/engine/lookahead.h"
#include "outrider/engine/token_ahead.h"

namespace outrider::engine {

namespace {

WorkBuffers make_work(const model::ModelSpec& spec, const EngineOptions& options, Device& device) {
  WorkBuffers work;
  const uint64_t n_bytes = WorkBuffers::lay_out(spec, options, nullptr, work);
  WorkBuffers::lay_out(spec, options, device.allocate(n_bytes, "work buffers"), work);
  return work;
}

// nullptr in a dense model.
std::unique_ptr<residency::ExpertStore> make_store(const model::Model& model, const EngineOptions& options) {
  if (model.n_moe_layers() == 0) return nullptr;
  residency::StoreOptions store_options{.files = {},
                                        .mirrors = options.mirrors,
                                        .layers = expert_sources(model),
                                        .slots_per_layer = options.slots_per_layer,
                                        .pool = options.slot_pool,
                                        .policy = options.evict,
                                        .lfu_half_life_tokens = options.lfu_half_life_tokens,
                                        .io = options.io,
                                        .direct = options.direct,
                                        .queue_depth = options.queue_depth,
                                        .populate_threads = options.n_threads,
                                        .faults = options.faults};
  for (const format::ModelPart& part : model.file.files) store_options.files.push_back(part.path);
  return std::make_unique<residency::ExpertStore>(std::move(store_options));
}

}  // namespace

struct Engine::Impl {
  // The store comes before the dense weights: what cannot be opened or had is told before minutes of reading.
  Impl(const model::Model& the_model, const EngineOptions& given, const LoadProgress& progress)
      : model(the_model),
        options(resolve(the_model, given)),
        device(options.isa, options.n_threads, model.spec.router.n_experts, model.spec.dv),
        work(make_work(model.spec, options, device)),
        kv(kv_layout(model.spec, options)),
        kv_memory(device.allocate(kv.total_bytes, "KV cache")),
        store(make_store(model, options)),
        ahead(store && options.lookahead != 0
                  ? std::make_unique<LookAhead>(
                        model.spec, model.n_moe_layers(),
                        LookAheadOptions{
                            .width = options.lookahead,
                            .distance = options.lookahead_distance,
                            .n_busy_cores = options.n_threads >= core_budget().default_threads ? options.n_threads : 0,
                            .only = options.guesses},
                        *store)
                  : nullptr),
        embedding_rows(options.embedding_on_drive
                           ? std::make_unique<EmbeddingRows>(model, options.chunk, options.faults)
                           : nullptr),
        weights(load_dense(model, device, !options.embedding_on_drive, progress)),
        token_ahead(
            ahead && TokenAhead::is_of_use(model.spec, options)
                ? std::make_unique<TokenAhead>(weights.head, device, options.token_ahead == TokenAheadMode::kAlways)
                : nullptr),
        rope(model.spec.rope, weights.rope_divisors),
        n_tokens(options.n_sequences, 0),
        n_after(options.n_sequences, 0) {
    prefill_rows.reserve(options.chunk);
  }

  PassContext context() {
    return {.device = device,
            .spec = model.spec,
            .weights = weights,
            .rope = rope,
            .work = work,
            .embedding_rows = embedding_rows.get(),
            .kv_layout = kv,
            .kv = kv_memory,
            .store = store.get(),
            .ahead = ahead.get(),
            .clock = clock,
            .cancel = options.cancel,
            .observer = observer,
            .watchers = watchers};
  }

  void check_sequence(uint32_t sequence) const {
    if (sequence >= options.n_sequences) {
      fail(ErrorKind::kBadArgument, "sequence is {}, wanted 0..{}", sequence, options.n_sequences - 1);
    }
  }

  void check_token(int32_t token) const {
    if (token < 0 || static_cast<uint32_t>(token) >= model.spec.n_vocab) {
      fail(ErrorKind::kBadArgument, "token is {}, wanted 0..{}", token, model.spec.n_vocab - 1);
    }
  }

  void check_context(uint32_t sequence, uint64_t n_more) const {
    if (n_tokens[sequence] + n_more > options.context) {
      fail(ErrorKind::kBadArgument,
           "context of {} positions is too small: sequence {} holds {} tokens and {} more were given", options.context,
           sequence, n_tokens[sequence], n_more);
    }
  }

  // Fills in work.places, work.tokens and work.wanted, and n_after; returns the number of wanted rows.
  uint32_t check_rows(std::span<const PassRow> rows) {
    if (rows.size() > options.chunk) {
      fail(ErrorKind::kBadArgument, "a pass of {} rows was given, wanted at most {} (the chunk)", rows.size(),
           options.chunk);
    }
    std::copy(n_tokens.begin(), n_tokens.end(), n_after.begin());
    uint32_t n_wanted = 0;
    for (uint32_t i = 0; i < rows.size(); ++i) {
      const PassRow& row = rows[i];
      check_sequence(row.sequence);
      check_token(row.token);
      if (row.position != n_after[row.sequence]) {
        fail(ErrorKind::kBadArgument, "row {}: position is {}, wanted {}: the next of sequence {}", i, row.position,
             n_after[row.sequence], row.sequence);
      }
      if (row.position >= options.context) {
        const auto n_given =
            std::count_if(rows.begin(), rows.end(), [&](const PassRow& r) { return r.sequence == row.sequence; });
        check_context(row.sequence, static_cast<uint64_t>(n_given));
      }
      ++n_after[row.sequence];
      work.places[i] = {row.sequence, row.position};
      work.tokens[i] = row.token;
      if (row.wants_logits) work.wanted[n_wanted++] = i;
    }
    return n_wanted;
  }

  // Runs checked rows through the layers and lets their sequences grow. Throws with nothing changed. `next`: who
  // chooses after this pass, if that is to be guessed.
  void run(std::span<const PassRow> rows, const NextTokenChooser* next = nullptr) {
    const auto n_rows = static_cast<uint32_t>(rows.size());
    const uint32_t n_layers_done = meet_guess(rows);
    for (PassObserver* watcher : watchers) {
      if (n_layers_done > 0) {
        watcher->resume_pass();
      } else {
        watcher->begin_pass(rows);
      }
    }
    if (n_layers_done > 0) {
      ahead->guessed_right();
      store->begin_step();  // what the caller did in between is no idle time of the drive's
    }
    clock.start();
    PassContext pass = context();
    if (next != nullptr) {
      pass.token_ahead = token_ahead.get();
      pass.next = next;
    }
    run_layers(pass, n_rows, n_layers_done);
    std::copy(n_after.begin(), n_after.end(), n_tokens.begin());
    if (store) store->end_step(n_rows);
    for (PassObserver* watcher : watchers) watcher->end_pass();
    ++n_passes;
    n_pass_rows += n_rows;
    clock.mark(&PhaseTimes::other);
  }

  // How many layers of this pass have been run by begin_next(); its guess, right or wrong, is settled.
  uint32_t meet_guess(std::span<const PassRow> rows) noexcept {
    const Guess guess = guessed;
    guessed = {};
    if (!guess.is_open) return 0;
    const bool is_right = guess.n_layers > 0 && rows.size() == 1 && rows[0].sequence == guess.place.sequence &&
                          rows[0].position == guess.place.position && rows[0].token == guess.token;
    token_ahead->note_outcome(is_right);
    return is_right ? guess.n_layers : 0;
  }

  // Whether the token after this pass is to be guessed.
  bool wants_guess(std::span<const PassRow> rows) noexcept {
    if (!token_ahead || rows.size() != 1 || !rows[0].wants_logits) return false;
    return !ahead->is_asleep() && rows[0].position + 1 < options.context && token_ahead->wants_guess();
  }

  // Between the layers of a pass of this one row and its head: has the head done while the pass of the token that
  // `next` chooses begins. False: nothing has happened.
  bool begin_next(const RowPlace row, NextTokenChooser& next) {
    const RowPlace place = {row.sequence, row.position + 1};
    const auto start = Clock::now();
    const int32_t token = next.choose(token_ahead->likeliest(work.head_in, work.guessed_logits, next));
    clock.mark(&PhaseTimes::head);
    const auto found = Clock::now();
    token_ahead->note_search(found - start);
    if (token < 0 || static_cast<uint32_t>(token) >= model.spec.n_vocab) return false;
    work.tokens[0] = token;
    work.places[0] = place;
    const PassRow guessed_row = {place.sequence, place.position, token, true};
    for (PassObserver* watcher : watchers) watcher->begin_guessed_pass({&guessed_row, 1});
    HeadWork head(device, weights.head, work.head_in, work.guessed_logits);
    PassContext pass = context();
    pass.head = &head;
    const uint64_t head_before = clock.times().head;
    guessed = {true, place, token, begin_guessed(pass)};
    const auto hidden = std::chrono::nanoseconds(clock.times().head - head_before);
    token_ahead->note_guess(Clock::now() - found - hidden, hidden);
    clock.mark(&PhaseTimes::other);
    head.finish();
    clock.mark(&PhaseTimes::head);
    return true;
  }

  // `next`: as in run().
  std::span<const float> logits_of(const uint32_t* row_idx, uint32_t n, NextTokenChooser* next = nullptr) {
    clock.start();
    norm_head(context(), row_idx, n);
    if (next != nullptr && begin_next(work.places[0], *next)) return {work.guessed_logits, model.spec.n_vocab};
    run_head(context(), n);
    return {work.logits, static_cast<size_t>(n) * model.spec.n_vocab};
  }

  using Clock = std::chrono::steady_clock;
  struct Guess {
    bool is_open = false;
    RowPlace place;
    int32_t token = 0;
    uint32_t n_layers = 0;  // that have been run
  };

  const model::Model& model;
  const EngineOptions options;
  CpuDevice device;
  WorkBuffers work;
  KvLayout kv;
  std::byte* kv_memory;
  std::unique_ptr<residency::ExpertStore> store;
  std::unique_ptr<LookAhead> ahead;               // nullptr: off
  std::unique_ptr<EmbeddingRows> embedding_rows;  // nullptr: resident
  DeviceModel weights;
  std::unique_ptr<TokenAhead> token_ahead;  // nullptr: off
  Guess guessed;                            // the pass that has been begun, and only if none has run since
  RopeTable rope;
  PhaseClock clock;
  RoutingObserver observer;
  std::vector<PassObserver*> watchers;
  std::vector<uint32_t> n_tokens;  // by sequence
  std::vector<uint32_t> n_after;   // by sequence: n_tokens once the pass has succeeded
  std::vector<PassRow> prefill_rows;
  std::vector<std::string> no_warnings;
  uint64_t n_passes = 0, n_pass_rows = 0;
};

Engine::Engine(const model::Model& model, const EngineOptions& options, const LoadProgress& progress)
    : impl_(std::make_unique<Impl>(model, options, progress)) {}
Engine::~Engine() = default;

const model::Model& Engine::model() const noexcept { return impl_->model; }
const EngineOptions& Engine::options() const noexcept { return impl_->options; }
const std::vector<std::string>& Engine::warnings() const noexcept {
  return impl_->store ? impl_->store->warnings() : impl_->no_warnings;
}

uint32_t Engine::n_tokens(uint32_t sequence) const {
  impl_->check_sequence(sequence);
  return impl_->n_tokens[sequence];
}

void Engine::keep(uint32_t sequence, uint32_t n) {
  impl_->check_sequence(sequence);
  if (n > impl_->n_tokens[sequence]) {
    fail(ErrorKind::kBadArgument, "cannot keep {} tokens of sequence {}, which has {}", n, sequence,
         impl_->n_tokens[sequence]);
  }
  impl_->n_tokens[sequence] = n;
}

std::span<const float> Engine::pass(std::span<const PassRow> rows, NextTokenChooser* next) {
  Impl& impl = *impl_;
  if (rows.empty()) return {};
  const uint32_t n_wanted = impl.check_rows(rows);
  if (n_wanted > impl.options.logit_rows) {
    fail(ErrorKind::kBadArgument, "logits of {} rows were asked for, wanted at most {}", n_wanted,
         impl.options.logit_rows);
  }
  if (next != nullptr && !impl.wants_guess(rows)) next = nullptr;
  impl.run(rows, next);
  if (n_wanted == 0) return {};
  return impl.logits_of(impl.work.wanted, n_wanted, next);
}

std::span<const float> Engine::prefill(uint32_t sequence, std::span<const int32_t> tokens, const OnLogits& on_logits) {
  Impl& impl = *impl_;
  impl.check_sequence(sequence);
  impl.check_context(sequence, tokens.size());
  for (const int32_t token : tokens) impl.check_token(token);
  std::span<const float> last;
  for (size_t begin = 0; begin < tokens.size(); begin += impl.options.chunk) {
    const size_t end = std::min(tokens.size(), begin + impl.options.chunk);
    impl.prefill_rows.clear();
    for (size_t i = begin; i < end; ++i) {
      const auto position = impl.n_tokens[sequence] + static_cast<uint32_t>(i - begin);
      const bool wanted = on_logits || i + 1 == tokens.size();
      impl.prefill_rows.push_back(
          {.sequence = sequence, .position = position, .token = tokens[i], .wants_logits = wanted});
    }
    const uint32_t n_wanted = impl.check_rows(impl.prefill_rows);
    impl.run(impl.prefill_rows);
    for (uint32_t at = 0; at < n_wanted; at += impl.options.logit_rows) {
      const uint32_t n = std::min(impl.options.logit_rows, n_wanted - at);
      const std::span<const float> logits = impl.logits_of(impl.work.wanted + at, n);
      for (uint32_t i = 0; i < n; ++i) {
        last = logits.subspan(static_cast<size_t>(i) * impl.model.spec.n_vocab, impl.model.spec.n_vocab);
        if (on_logits) on_logits(static_cast<uint32_t>(begin) + at + i, last);
      }
    }
  }
  return last;
}

// Whoever observes sees whole passes: one that has begun begins again.
void Engine::set_routing_observer(RoutingObserver observer) {
  impl_->guessed = {};
  impl_->observer = std::move(observer);
}

void Engine::add_pass_observer(PassObserver& observer) {
  impl_->guessed = {};
  impl_->watchers.push_back(&observer);
}

EngineCounters Engine::counters() const noexcept {
  EngineCounters counters{.passes = impl_->n_passes, .rows = impl_->n_pass_rows, .experts = {}};
  if (impl_->store) counters.experts = impl_->store->counters();
  return counters;
}

io::ReadLatency Engine::read_latency() const noexcept {
  return impl_->store ? impl_->store->read_latency() : io::ReadLatency{};
}

std::vector<io::CopyReads> Engine::copy_reads() const {
  return impl_->store ? impl_->store->copy_reads() : std::vector<io::CopyReads>();
}

PhaseTimes Engine::phase_times() const noexcept { return impl_->clock.times(); }

std::vector<LookAheadScore> Engine::lookahead_scores() const {
  return impl_->ahead ? impl_->ahead->scores() : std::vector<LookAheadScore>();
}
NextTokenScore Engine::next_token_score() const noexcept {
  if (!impl_->token_ahead) return {};
  return {.guessed = impl_->token_ahead->n_guessed(),
          .right = impl_->token_ahead->n_right(),
          .searched_early = impl_->token_ahead->n_early()};
}
uint32_t Engine::lookahead_width() const noexcept { return impl_->ahead ? impl_->ahead->width() : 0; }
std::string Engine::lookahead_report() const {
  return (impl_->ahead ? impl_->ahead->report() : "") + (impl_->token_ahead ? impl_->token_ahead->report() : "");
}

std::vector<std::byte> Engine::token_table() const {
  return impl_->ahead ? impl_->ahead->token_table() : std::vector<std::byte>();
}
bool Engine::restore_token_table(std::span<const std::byte> table) {
  return impl_->ahead && impl_->ahead->restore_token_table(table);
}

void Engine::refill(std::vector<residency::ExpertKey> experts) {
  if (impl_->store) impl_->store->refill(std::move(experts));
}

std::vector<std::vector<float>> Engine::expert_heat() const {
  std::vector<std::vector<float>> heat(impl_->model.n_moe_layers());
  for (uint32_t layer = 0; layer < heat.size(); ++layer) {
    for (uint32_t expert = 0; expert < impl_->model.spec.router.n_experts; ++expert) {
      heat[layer].push_back(static_cast<float>(impl_->store->heat(layer, expert)));
    }
  }
  return heat;
}

std::string Engine::kernel_class() const { return "exact"; }

}  // namespace outrider::engine
