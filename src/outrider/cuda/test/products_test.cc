// SPDX-License-Identifier: Apache-2.0
// Products of every type, row kernels and tiles, and the expert form, against the scalar reference.
#include <algorithm>

#include "outrider/cuda/product/variants.h"
#include "outrider/cuda/test/harness.h"
#include "outrider/kernels/elementwise/elementwise.h"
#include "outrider/kernels/matmul/matmul.h"
#include "outrider/kernels/quantize_act/quantize_act.h"

namespace outrider::cuda::test {
namespace {

using format::TensorType;

struct Shape {
  uint32_t n_rows, k, n_tokens;
  bool faulty;
};

std::string name_of(const Shape& s) {
  return std::to_string(s.n_rows) + "x" + std::to_string(s.k) + " tokens " + std::to_string(s.n_tokens) +
         (s.faulty ? " faulty" : "");
}

// Edges of a warp, a stage and a tile in every direction, then real shapes. `few`: one for each way through a kernel.
std::vector<Shape> shapes(const format::TypeInfo& info, bool few) {
  std::vector<Shape> all;
  const uint32_t e = info.block_elems;
  if (few) {
    return {{37, std::max(e, 288U / e * e), 3, false}, {19, 1024, 8, false}, {67, 2 * e, 11, false}};
  }
  for (const uint32_t n_blocks : {0U, 1U, 2U, 3U, 5U, 7U, 8U, 9U, 13U}) all.push_back({19, n_blocks * e, 3, false});
  for (const uint32_t n_rows : {0U, 1U, 3U, 4U, 5U, 16U, 17U, 63U, 64U, 65U, 131U})
    all.push_back({n_rows, 2 * e, 2, false});
  const uint32_t k = std::max(e, 512U);
  for (const uint32_t n_tokens : {0U, 1U, 2U, 3U, 4U, 5U, 7U, 8U, 9U, 16U, 17U, 63U, 64U, 65U, 129U}) {
    all.push_back({37, k, n_tokens, false});
  }
  all.push_back({37, k, 11, true});
  all.push_back({70, k, 140, true});
  if (e == 1) {
    for (const uint32_t odd : {1U, 15U, 31U, 32U, 33U, 127U, 257U}) all.push_back({7, odd, 5, false});
  }
  all.push_back({768, 2048, 8, false});
  all.push_back({130, 2048, 70, false});
  all.push_back({130, 7 * std::max(e, 128U), 200, false});
  if (768 % e == 0) all.push_back({2048, 768, 4, false});
  if (640 % e == 0) all.push_back({2560, 640, 1, false});
  all.push_back({640, 2560, 2, false});
  all.push_back({64, 7168, 33, false});
  return all;
}

void compare_product(Tally& tally, const std::string& group, const std::string& name, const std::vector<float>& want,
                     const ProductArgs& args, const DeviceBuffer& out, uint64_t n_out) {
  const std::vector<float> got = download<float>(out, n_out);
  uint64_t at = 0;
  for (uint32_t i = 0; i < args.job.n_pairs; ++i, at += args.n_rows) {
    tally.compare(group, name, want.data() + at, got.data() + i * args.out_stride, args.n_rows);
  }
}

void test_type(Tally& tally, const format::TypeInfo& info, const Codebooks& books, Random& rng, bool few) {
  const Stream stream;
  const std::string type(info.name);
  for (const Shape& s : shapes(info, few)) {
    const Rows x(rng, std::max(1U, s.n_tokens), s.k);
    const std::vector<std::byte> weights = random_weights(info.type, s.n_rows, s.k, rng, s.faulty);
    const DeviceBuffer weights_device = upload(weights);
    std::vector<uint32_t> rows(s.n_tokens);  // gathered, with repeats
    for (uint32_t& row : rows) row = static_cast<uint32_t>(rng.below(x.n_rows));
    const DeviceBuffer rows_device = upload(rows);
    const bool gathered = rng.below(2) != 0;
    const std::vector<float> want = reference_product(info.type, weights.data(), s.n_rows, s.k, x.host(),
                                                      gathered ? rows.data() : nullptr, s.n_tokens);
    ProductArgs args;
    args.type = info.type, args.n_rows = s.n_rows, args.k = s.k;
    args.job = {weights_device.data(), nullptr, 0, s.n_tokens};
    args.most_pairs = s.n_tokens;
    args.x = x.device();
    args.token_rows = gathered ? rows_device.as<uint32_t>() : nullptr;
    args.out_stride = s.n_rows + 5U;
    args.codebooks = books;
    const uint64_t n_out = s.n_tokens * args.out_stride;
    // most_pairs and scratch choose the kernel, never a bit: 1, 2, 4, 8 tokens at once, tiles, wide tiles.
    constexpr uint32_t kWide = 65;
    for (const uint32_t choice : {1U, 2U, 4U, 8U, kMostRowTokens + 1, kWide}) {
      if (choice <= kMostRowTokens && choice > 2 * s.n_tokens) continue;
      if (!has_unit(info.type) && choice != 1) continue;
      const DeviceBuffer out = poisoned(n_out * 4);
      args.out = out.as<float>();
      args.most_pairs = s.n_tokens == 0 ? 0 : std::max(choice, choice > kMostRowTokens ? s.n_tokens : 0U);
      const DeviceBuffer scratch(choice == kWide ? product_scratch_bytes(s.k, 1, args.most_pairs) : 0);
      args.scratch = scratch.data();
      product(args, stream.get());
      const std::string way = !has_unit(info.type)      ? "float"
                              : choice == kWide         ? "wide tiles"
                              : choice > kMostRowTokens ? "tiles"
                                                        : "rows";
      compare_product(tally, "product " + way + " " + type, name_of(s) + " at once " + std::to_string(choice), want,
                      args, out, n_out);
    }
  }
}

// The same products of packed weights, several experts' worth of tokens one after the other.
void test_packed(Tally& tally, const format::TypeInfo& info, Random& rng, bool few) {
  const Stream stream;
  for (const Shape& s : shapes(info, few)) {
    if (s.n_tokens > kMostRowTokens) continue;
    const Rows x(rng, std::max(1U, s.n_tokens), s.k);
    const std::vector<std::byte> weights = random_weights(info.type, s.n_rows, s.k, rng, s.faulty);
    const DeviceBuffer file = upload(weights), packed = poisoned(packed_bytes(info.type, s.n_rows, s.k));
    const PackedMatrix matrix = {file.data(), packed.data()};
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // the pattern is written on another stream
    pack({info.type, s.n_rows, s.k, &matrix, 1}, stream.get());
    const std::vector<float> want =
        reference_product(info.type, weights.data(), s.n_rows, s.k, x.host(), nullptr, s.n_tokens);
    ProductArgs args;
    args.type = info.type, args.n_rows = s.n_rows, args.k = s.k;
    args.job = {packed.data(), nullptr, 0, s.n_tokens};
    args.most_pairs = s.n_tokens;
    args.x = x.device();
    args.packed = true;
    args.out_stride = s.n_rows + 5U;
    const uint64_t n_out = s.n_tokens * args.out_stride;
    const DeviceBuffer out = poisoned(n_out * 4);
    args.out = out.as<float>();
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    product(args, stream.get());
    compare_product(tally, "product packed " + std::string(info.name), name_of(s), want, args, out, n_out);
  }
}

// ---- experts ----

struct Experts {
  uint32_t d_model, d_ff, n_experts, n_used, n_rows;
  TensorType in_type, down_type;
  float alpha, limit;
};

std::string name_of(const Experts& e) {
  return std::string(format::type_info(e.in_type).name) + " " + std::to_string(e.d_model) + "x" +
         std::to_string(e.d_ff) + " rows " + std::to_string(e.n_rows);
}

// The host's way through one expert layer, scalar throughout.
struct Reference {
  std::vector<float> hidden, expert_out, x;
  std::vector<int8_t> q;
  std::vector<float> d;
  std::vector<int32_t> sum32;
  std::vector<int16_t> sum16;
};

struct Problem {
  std::vector<std::vector<std::byte>> up, gate, down;
  std::vector<ProductJob> jobs;  // offsets and counts; pointers filled per device
  std::vector<uint32_t> pair_row, pair_of;
  std::vector<float> weights, shared, shared_gate;
};

Problem make_problem(const Experts& e, Random& rng) {
  Problem p;
  std::vector<std::vector<uint32_t>> tokens(e.n_experts);
  p.pair_of.resize(e.n_rows * e.n_used);
  std::vector<std::vector<uint32_t>> at(e.n_experts);
  for (uint32_t row = 0; row < e.n_rows; ++row) {
    std::vector<uint32_t> ids(e.n_experts);
    for (uint32_t i = 0; i < e.n_experts; ++i) ids[i] = i;
    for (uint32_t rank = 0; rank < e.n_used; ++rank) {
      std::swap(ids[rank], ids[rank + rng.below(e.n_experts - rank)]);
      tokens[ids[rank]].push_back(row);
      at[ids[rank]].push_back(row * e.n_used + rank);
    }
  }
  for (uint32_t expert = 0; expert < e.n_experts; ++expert) {  // experts without tokens stay in the list
    ProductJob job;
    job.pair_begin = static_cast<uint32_t>(p.pair_row.size());
    job.n_pairs = static_cast<uint32_t>(tokens[expert].size());
    for (uint32_t i = 0; i < job.n_pairs; ++i) {
      p.pair_of[at[expert][i]] = static_cast<uint32_t>(p.pair_row.size());
      p.pair_row.push_back(tokens[expert][i]);
    }
    p.jobs.push_back(job);
    p.up.push_back(random_weights(e.in_type, e.d_ff, e.d_model, rng, false));
    p.gate.push_back(random_weights(e.in_type, e.d_ff, e.d_model, rng, false));
    p.down.push_back(random_weights(e.down_type, e.d_model, e.d_ff, rng, false));
  }
  p.weights = random_floats(rng, p.pair_of.size());
  p.shared = random_floats(rng, static_cast<uint64_t>(e.n_rows) * e.d_model);
  p.shared_gate = random_floats(rng, e.n_rows);
  return p;
}

void reference_layer(const Experts& e, const Problem& p, const Rows& x, Reference& ref) {
  const uint64_t n_pairs = p.pair_row.size();
  const kernels::ElementwiseFns& fns = kernels::choose_elementwise(Isa::kScalar);
  ref.hidden.resize(n_pairs * e.d_ff);
  ref.q.resize(n_pairs * e.d_ff), ref.d.resize(n_pairs * e.d_ff / 32), ref.sum32.resize(n_pairs * e.d_ff / 32);
  ref.sum16.resize(n_pairs * e.d_ff / 16), ref.expert_out.resize(n_pairs * e.d_model);
  for (uint32_t i = 0; i < e.n_experts; ++i) {
    const ProductJob& job = p.jobs[i];
    const uint32_t* rows = p.pair_row.data() + job.pair_begin;
    const auto up = reference_product(e.in_type, p.up[i].data(), e.d_ff, e.d_model, x.host(), rows, job.n_pairs);
    const auto gate = reference_product(e.in_type, p.gate[i].data(), e.d_ff, e.d_model, x.host(), rows, job.n_pairs);
    float* hidden = ref.hidden.data() + static_cast<uint64_t>(job.pair_begin) * e.d_ff;
    if (e.alpha != 0) {
      fns.swiglu_clamped(gate.data(), up.data(), e.alpha, e.limit, hidden, gate.size());
    } else {
      fns.swiglu(gate.data(), up.data(), hidden, gate.size());
    }
  }
  for (uint64_t pair = 0; pair < n_pairs; ++pair) {
    kernels::choose_quantize_act(Isa::kScalar)(&ref.hidden[pair * e.d_ff], e.d_ff, &ref.q[pair * e.d_ff],
                                               &ref.d[pair * e.d_ff / 32], &ref.sum32[pair * e.d_ff / 32],
                                               &ref.sum16[pair * e.d_ff / 16]);
  }
  const numerics::Activations hidden = {ref.hidden.data(), e.d_ff,           ref.q.data(), ref.d.data(),
                                        ref.sum32.data(),  ref.sum16.data(), e.d_ff};
  for (uint32_t i = 0; i < e.n_experts; ++i) {
    const ProductJob& job = p.jobs[i];
    std::vector<uint32_t> pairs(job.n_pairs);
    for (uint32_t j = 0; j < job.n_pairs; ++j) pairs[j] = job.pair_begin + j;
    const auto out =
        reference_product(e.down_type, p.down[i].data(), e.d_model, e.d_ff, hidden, pairs.data(), job.n_pairs);
    std::copy(out.begin(), out.end(), ref.expert_out.begin() + static_cast<int64_t>(job.pair_begin) * e.d_model);
  }
  ref.x = x.f32;
  for (uint32_t row = 0; row < e.n_rows; ++row) {
    std::vector<float> sum(e.d_model, 0.0F);
    for (uint32_t rank = 0; rank < e.n_used; ++rank) {
      const uint64_t at = static_cast<uint64_t>(row) * e.n_used + rank;
      fns.add_scaled(sum.data(), &ref.expert_out[static_cast<uint64_t>(p.pair_of[at]) * e.d_model], p.weights[at],
                     e.d_model);
    }
    fns.add_scaled(sum.data(), &p.shared[static_cast<uint64_t>(row) * e.d_model],
                   kernels::sigmoid_f32(p.shared_gate[row]), e.d_model);
    fns.add(&ref.x[static_cast<uint64_t>(row) * e.d_model], sum.data(), e.d_model);
  }
}

// The products as two launches that overlap, a graph of two layers of the same input and weights, replayed.
void test_handed_layer(Tally& tally, const std::string& name, const Reference& ref, ExpertLayerArgs args) {
  const uint64_t n_out = ref.expert_out.size();
  const uint64_t n_hidden = ref.hidden.size();
  const Stream stream;
  for (const bool ahead : {false, true}) {
    const DeviceBuffer handed(2 * n_hidden * 4);
    const DeviceBuffer out = poisoned(2 * n_out * 4);
    args.in.in.ahead = ahead;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    cuda_check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    cuda_check(cudaMemsetAsync(handed.data(), 0xFF, handed.n_bytes(), stream.get()), "cudaMemsetAsync");
    for (uint32_t layer = 0; layer < 2; ++layer) {
      args.handed = handed.as<float>() + layer * n_hidden;
      args.down.out = out.as<float>() + layer * n_out;
      expert_layer(args, stream.get());
    }
    cuda_check(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
    cuda_check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    for (int replay = 0; replay < 3; ++replay) {
      cuda_check(cudaMemset(out.data(), 0xA5, 2 * n_out * 4), "cudaMemset");
      cuda_check(cudaGraphLaunch(exec, stream.get()), "cudaGraphLaunch");
      stream.synchronize();
      const std::vector<float> got = download<float>(out, 2 * n_out);
      for (uint32_t layer = 0; layer < 2; ++layer) {
        tally.compare(std::string("experts handed over") + (ahead ? " ahead" : ""), name, ref.expert_out.data(),
                      got.data() + layer * n_out, n_out);
      }
    }
    cuda_check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
    cuda_check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }
}

// The kernels of one token, whatever a job has, in a graph; and those for launches beside others.
void test_one_token_layer(Tally& tally, const std::string& name, const Reference& ref, GatedArgs in, ProductArgs down) {
  const uint64_t n_hidden = ref.hidden.size();
  const Stream stream;
  for (const bool beside : {false, true}) {
    const std::string group = std::string("experts one token") + (beside ? " beside" : "");
    const DeviceBuffer hidden = poisoned(n_hidden * 4), out = poisoned(ref.expert_out.size() * 4);
    const DeviceRows codes(n_hidden / down.k, down.k);
    in.in.most_pairs = down.most_pairs = 1;
    in.in.beside = down.beside = in.in.ahead = down.ahead = beside;
    in.in.out = hidden.as<float>(), in.hidden = codes.view(), down.out = out.as<float>();
    const QuantizedRows h = codes.view();
    down.x = {hidden.as<float>(), down.k, h.q, h.d, h.sum32, h.sum16, down.k};
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // the pattern is written on another stream
    gated_product(in, stream.get());
    product(down, stream.get());
    stream.synchronize();
    tally.compare(group, name, ref.hidden.data(), download<float>(hidden, n_hidden).data(), n_hidden);
    tally.compare_bytes(group, name, ref.q.data(), download<int8_t>(codes.q, ref.q.size()).data(), ref.q.size());
    tally.compare(group, name, ref.expert_out.data(), download<float>(out, ref.expert_out.size()).data(),
                  ref.expert_out.size());
  }
}

// Every weight packed, in place of the files' bytes.
void test_packed_layer(Tally& tally, const std::string& name, const Experts& e, const Reference& ref, GatedArgs in,
                       ProductArgs down, std::vector<ProductJob> in_jobs, std::vector<ProductJob> down_jobs) {
  if (!has_packed(e.in_type) || !has_packed(e.down_type)) return;
  const Stream stream;
  std::vector<DeviceBuffer> slabs;
  const auto packed = [&](const std::byte* from, TensorType type, uint32_t n_rows, uint32_t k) {
    slabs.push_back(poisoned(packed_bytes(type, n_rows, k)));
    const PackedMatrix matrix = {from, slabs.back().data()};
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    pack({type, n_rows, k, &matrix, 1}, stream.get());
    return slabs.back().data();
  };
  for (ProductJob& job : in_jobs) {
    job.weights = packed(job.weights, e.in_type, e.d_ff, e.d_model);
    job.gate = packed(job.gate, e.in_type, e.d_ff, e.d_model);
  }
  for (ProductJob& job : down_jobs) job.weights = packed(job.weights, e.down_type, e.d_model, e.d_ff);
  const DeviceBuffer in_device = upload(in_jobs), down_device = upload(down_jobs);
  in.in.jobs = in_device.as<ProductJob>(), down.jobs = down_device.as<ProductJob>();
  for (const uint32_t way : {0U, 1U, 2U}) {
    const bool ahead = way != 0, beside = way == 2;
    const std::string group = std::string("experts packed") + (beside ? " beside" : ahead ? " ahead" : "");
    const DeviceBuffer hidden = poisoned(ref.hidden.size() * 4), out = poisoned(ref.expert_out.size() * 4);
    const DeviceRows codes(ref.hidden.size() / down.k, down.k);
    in.in.packed = down.packed = true;
    in.in.ahead = down.ahead = ahead;
    in.in.beside = down.beside = beside;
    in.in.out = hidden.as<float>(), in.hidden = codes.view(), down.out = out.as<float>();
    const QuantizedRows h = codes.view();
    down.x = {hidden.as<float>(), down.k, h.q, h.d, h.sum32, h.sum16, down.k};
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    gated_product(in, stream.get());
    product(down, stream.get());
    stream.synchronize();
    tally.compare(group, name, ref.hidden.data(), download<float>(hidden, ref.hidden.size()).data(), ref.hidden.size());
    tally.compare_bytes(group, name, ref.q.data(), download<int8_t>(codes.q, ref.q.size()).data(), ref.q.size());
    tally.compare(group, name, ref.expert_out.data(), download<float>(out, ref.expert_out.size()).data(),
                  ref.expert_out.size());
  }
}

void test_expert_layer(Tally& tally, const Experts& e, Random& rng) {
  const std::string name = name_of(e);
  const Rows x(rng, e.n_rows, e.d_model);
  const Problem p = make_problem(e, rng);
  Reference ref;
  reference_layer(e, p, x, ref);

  std::vector<DeviceBuffer> slabs;
  std::vector<ProductJob> in_jobs = p.jobs;
  std::vector<ProductJob> down_jobs = p.jobs;
  uint32_t most_pairs = 0;
  for (uint32_t i = 0; i < e.n_experts; ++i) {
    for (const std::vector<std::byte>* part : {&p.up[i], &p.gate[i], &p.down[i]}) slabs.push_back(upload(*part));
    in_jobs[i].weights = slabs[3 * i].data(), in_jobs[i].gate = slabs[3 * i + 1].data(),
    down_jobs[i].weights = slabs[3 * i + 2].data();
    most_pairs = std::max(most_pairs, p.jobs[i].n_pairs);
  }
  const DeviceBuffer in_jobs_device = upload(in_jobs), down_jobs_device = upload(down_jobs),
                     pair_row = upload(p.pair_row);
  const DeviceBuffer pair_of = upload(p.pair_of), weights = upload(p.weights), shared = upload(p.shared);
  const DeviceBuffer shared_gate = upload(p.shared_gate);
  const uint64_t n_pairs = p.pair_row.size();
  const DeviceBuffer hidden_f32 = poisoned(n_pairs * e.d_ff * 4), expert_out = poisoned(n_pairs * e.d_model * 4);
  const DeviceRows hidden(n_pairs, e.d_ff);
  const DeviceBuffer residual = upload(x.f32);

  GatedArgs in;
  in.in.type = e.in_type, in.in.n_rows = e.d_ff, in.in.k = e.d_model, in.in.jobs = in_jobs_device.as<ProductJob>();
  in.in.n_jobs = e.n_experts, in.in.most_pairs = most_pairs, in.in.x = x.device(),
  in.in.token_rows = pair_row.as<uint32_t>();
  in.in.out = hidden_f32.as<float>(), in.in.out_stride = e.d_ff;
  in.alpha = e.alpha, in.limit = e.limit, in.hidden = hidden.view();
  ProductArgs down;
  down.type = e.down_type, down.n_rows = e.d_model, down.k = e.d_ff, down.jobs = down_jobs_device.as<ProductJob>();
  down.n_jobs = e.n_experts, down.most_pairs = most_pairs, down.out = expert_out.as<float>(),
  down.out_stride = e.d_model;
  const DeviceBuffer scratch = poisoned(product_scratch_bytes(e.d_ff, e.n_experts, most_pairs));
  down.scratch = scratch.data();
  const QuantizedRows h = hidden.view();
  down.x = {hidden_f32.as<float>(), e.d_ff, h.q, h.d, h.sum32, h.sum16, e.d_ff};
  const CombineArgs last = {residual.as<float>(),
                            expert_out.as<float>(),
                            pair_of.as<uint32_t>(),
                            weights.as<float>(),
                            shared.as<float>(),
                            shared_gate.as<float>(),
                            e.n_rows,
                            e.n_used,
                            e.d_model};

  // The whole layer as a graph: captured once, which proves that no launch allocates or waits, and replayed.
  const Stream stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cuda_check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  gated_product(in, stream.get());
  product(down, stream.get());
  combine(last, stream.get());
  cuda_check(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
  cuda_check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  for (int replay = 0; replay < 2; ++replay) {
    cuda_check(cudaMemcpy(residual.data(), x.f32.data(), x.f32.size() * 4, cudaMemcpyHostToDevice), "cudaMemcpy");
    cuda_check(cudaGraphLaunch(exec, stream.get()), "cudaGraphLaunch");
    stream.synchronize();
    tally.compare("experts gated", name, ref.hidden.data(), download<float>(hidden_f32, n_pairs * e.d_ff).data(),
                  n_pairs * e.d_ff);
    tally.compare_bytes("experts gated codes", name, ref.q.data(), download<int8_t>(hidden.q, ref.q.size()).data(),
                        ref.q.size());
    tally.compare("experts gated codes", name, ref.d.data(), download<float>(hidden.d, ref.d.size()).data(),
                  ref.d.size());
    tally.compare_bytes("experts gated codes", name, ref.sum16.data(),
                        download<int16_t>(hidden.sum16, ref.sum16.size()).data(), ref.sum16.size());
    tally.compare("experts down", name, ref.expert_out.data(),
                  download<float>(expert_out, ref.expert_out.size()).data(), ref.expert_out.size());
    tally.compare("experts combine", name, ref.x.data(), download<float>(residual, ref.x.size()).data(), ref.x.size());
  }
  cuda_check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
  cuda_check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  test_handed_layer(tally, name, ref, {in, down, nullptr});
  test_one_token_layer(tally, name, ref, in, down);
  test_packed_layer(tally, name, e, ref, in, down, in_jobs, down_jobs);
}

}  // namespace

void test_products(Tally& tally, const Codebooks& books, uint64_t seed, bool few) {
  for (const format::TypeInfo& info : format::kTensorTypes) {
    Random rng(seed * 1000 + static_cast<uint64_t>(info.type));
    if (!info.is_weight) continue;
    tally.expect("product table", std::string(info.name),
                 has_unit(info.type) == (kernels::activation_form(info.type) == kernels::ActivationForm::kQuantized));
    test_type(tally, info, books, rng, few);
    if (has_packed(info.type)) test_packed(tally, info, rng, few);
  }
}

void test_experts(Tally& tally, uint64_t seed, bool few) {
  Random rng(seed);
  for (const ProductVariant& variant : product_variants()) {
    test_expert_layer(tally, {256, 256, 9, 3, few ? 2U : 5U, variant.type, variant.type, 0, 0}, rng);
  }
  if (few) return;
  // Rows for whose length packed kernels are cut.
  for (const ProductVariant& variant : product_variants()) {
    if (!has_packed(variant.type)) continue;
    test_expert_layer(tally, {2048, 768, 3, 2, 1, variant.type, variant.type, 0, 0}, rng);
    if (format::type_info(variant.type).block_elems > 32) continue;
    test_expert_layer(tally, {2560, 640, 3, 2, 2, variant.type, variant.type, 0, 0}, rng);
  }
  test_expert_layer(tally, {2048, 768, 16, 8, 1, TensorType::kQ4_K, TensorType::kQ6_K, 0, 0}, rng);
  test_expert_layer(tally, {2560, 640, 12, 10, 3, TensorType::kQ4_0, TensorType::kQ8_0, 0, 0}, rng);
  test_expert_layer(tally, {288, 96, 7, 4, 40, TensorType::kMXFP4, TensorType::kMXFP4, 1.702F, 7.0F}, rng);
  test_expert_layer(tally, {512, 256, 4, 2, 150, TensorType::kIQ4_XS, TensorType::kIQ4_NL, 0, 0}, rng);
  test_expert_layer(tally, {256, 768, 3, 2, 220, TensorType::kQ4_0, TensorType::kQ5_K, 0, 0}, rng);
}

}  // namespace outrider::cuda::test
