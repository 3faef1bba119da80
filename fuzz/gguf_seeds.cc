// SPDX-License-Identifier: Apache-2.0
// Writes the seeds of gguf_fuzz into a folder: small good files that between them use every value type, every tensor
// type, expert stacks, split keys and several alignments; and the head of a packed one.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "outrider/base/error.h"
#include "outrider/format/gguf_writer.h"
#include "outrider/format/pack.h"

namespace {

using namespace outrider;
using namespace outrider::format;

void add_zeros(GgufWriter& writer, const std::string& name, TensorType type, std::vector<uint64_t> dims) {
  uint64_t n_bytes = row_bytes(type, dims[0]);
  for (size_t d = 1; d < dims.size(); ++d) n_bytes *= dims[d];
  writer.add(name, type, std::move(dims), from_memory(std::vector<std::byte>(n_bytes)));
}

Metadata every_value_type() {
  Metadata m;
  m.set_string("general.architecture", "tiny");
  m.set_uint("u8", 1, ValueType::kU8);
  m.set_uint("i8", 1, ValueType::kI8);
  m.set_uint("u16", 1, ValueType::kU16);
  m.set_uint("i16", 1, ValueType::kI16);
  m.set_uint("u32", 1);
  m.set_uint("i32", 1, ValueType::kI32);
  m.set_uint("u64", 1, ValueType::kU64);
  m.set_uint("i64", 1, ValueType::kI64);
  m.set_real("f32", 0.5);
  m.set_real("f64", 0.5, ValueType::kF64);
  m.set_bool("bool", true);
  m.set_strings("strings", {"a", "bc", ""});
  m.set_ints("ints", {-1, 2});
  m.set_ints("bytes", {1, 2}, ValueType::kU8);
  m.set_ints("bools", {0, 1}, ValueType::kBool);
  m.set_reals("reals", {0.5, -2}, ValueType::kF64);
  return m;
}

// Two layers of two experts, gate, up and down; without the padding behind the tensor records, and without data.
void write_packed_head(const std::string& path) {
  Metadata m;
  std::vector<std::string> names, blobs;
  std::vector<int64_t> types, dims, offsets;
  for (const char* layer : {"blk.0", "blk.1"}) {
    int64_t offset = 0;
    for (const char* part : {"gate", "up", "down"}) {
      names.push_back(std::string(layer) + ".ffn_" + part + "_exps.weight");
      blobs.push_back(std::string("outrider.pack.") + layer);
      types.push_back(static_cast<int64_t>(TensorType::kQ4_0));
      dims.insert(dims.end(), {32, 4, 2});
      offsets.push_back(offset);
      offset += static_cast<int64_t>(4 * row_bytes(TensorType::kQ4_0, 32));
    }
  }
  m.set_uint("general.alignment", kPackAlignment);
  m.set_uint(std::string(kPackVersionKey), kPackVersion);
  m.set_strings(std::string(kPackNamesKey), names);
  m.set_strings(std::string(kPackBlobsKey), blobs);
  m.set_ints(std::string(kPackTypesKey), types);
  m.set_ints(std::string(kPackDimsKey), dims, ValueType::kI64);
  m.set_ints(std::string(kPackOffsetsKey), offsets, ValueType::kI64);
  GgufWriter writer(std::move(m));
  for (const char* layer : {"blk.0", "blk.1"}) {
    writer.add(std::string("outrider.pack.") + layer, TensorType::kI8, {kPackAlignment, 2}, {});
  }
  writer.add(std::string(kPackHashesTensor), TensorType::kI64, {5}, {});
  std::string head = writer.head();
  head.resize(head.find_last_not_of('\0') + 7);  // the last record ends with an offset of 16 KiB in eight bytes
  std::ofstream(path, std::ios::binary) << head;
}

void write_seeds(const std::string& folder) {
  std::filesystem::create_directories(folder);
  GgufWriter(Metadata()).write(folder + "/empty.gguf");
  write_packed_head(folder + "/packed.head");
  GgufWriter values(every_value_type());
  add_zeros(values, "token_embd.weight", TensorType::kF32, {2, 2});
  values.write(folder + "/values.gguf");
  for (const TypeInfo& info : kTensorTypes) {
    GgufWriter writer{Metadata()};
    add_zeros(writer, "x", info.type, {info.block_elems});
    writer.write(folder + "/type-" + std::string(info.name) + ".gguf");
  }
  for (const uint32_t alignment : {8U, 64U, 256U}) {
    GgufWriter writer{Metadata()};
    writer.metadata().set_uint("general.alignment", alignment);
    for (const char* part : {"gate", "up", "down"}) {
      add_zeros(writer, "blk.1.ffn_" + std::string(part) + "_exps.weight", TensorType::kQ4_0, {32, 1, 2});
    }
    add_zeros(writer, "blk.1.nextn.eh_proj.weight", TensorType::kF16, {2, 2, 1, 1});
    writer.write(folder + "/experts-" + std::to_string(alignment) + ".gguf");
    writer.write_split(folder + "/split-" + std::to_string(alignment), 2);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: gguf_seeds FOLDER\n");
    return 2;
  }
  try {
    write_seeds(argv[1]);
  } catch (const Error& error) {
    std::fprintf(stderr, "gguf_seeds: %s\n", error.what());
    return 1;
  }
  return 0;
}
