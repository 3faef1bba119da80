// SPDX-License-Identifier: Apache-2.0
// The kept probe: its JSON, its place, and whether it is of this machine.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "outrider/base/cpu.h"
#include "outrider/base/error.h"
#include "outrider/whatif/probe.h"

namespace outrider::whatif {

namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxFileBytes = 1 << 20;

double positive(const Json& value) {
  const double number = value.get<double>();
  if (!std::isfinite(number) || number < 0) throw std::runtime_error("a rate is not a number from 0 on");
  return number;
}

constexpr std::array<std::pair<kernels::KvType, const char*>, 3> kKvNames = {
    {{kernels::KvType::kF16, "f16"}, {kernels::KvType::kF32, "f32"}, {kernels::KvType::kQ8_0, "q8_0"}}};

Json operations_json(const OperationRates& rates) {
  Json out = {{"products", Json::array()},   {"attention", Json::array()},     {"fork_ns", rates.fork_ns},
              {"norm_ns", rates.norm_ns},    {"combine_ns", rates.combine_ns}, {"route_ns", rates.route_ns},
              {"sample_ns", rates.sample_ns}};
  for (const ProductRates& r : rates.products) {
    out["products"].push_back({{"type", format::type_info(r.type).name},
                               {"row_gbps", r.row_gbps},
                               {"expert_gmacs", r.expert_gmacs},
                               {"dense_gmacs", r.dense_gmacs}});
  }
  for (const AttentionRates& r : rates.attention) {
    for (const auto& [type, name] : kKvNames) {
      if (type == r.kv_type)
        out["attention"].push_back({{"kv_type", name}, {"row_gmacs", r.row_gmacs}, {"rows_gmacs", r.rows_gmacs}});
    }
  }
  return out;
}

OperationRates operations_from(const Json& in) {
  OperationRates rates;
  for (const Json& row : in.at("products")) {
    const auto type = format::parse_tensor_type(row.at("type").get<std::string>());
    const Json& tiles = row.at("expert_gmacs");
    if (!type || tiles.size() != kExpertTokens.size()) throw std::runtime_error("a product is of no known form");
    ProductRates& product = rates.products.emplace_back(ProductRates{
        .type = *type, .row_gbps = positive(row.at("row_gbps")), .dense_gmacs = positive(row.at("dense_gmacs"))});
    for (size_t i = 0; i < kExpertTokens.size(); ++i) product.expert_gmacs[i] = positive(tiles.at(i));
  }
  for (const Json& row : in.at("attention")) {
    for (const auto& [type, name] : kKvNames) {
      if (row.at("kv_type") == name)
        rates.attention.push_back({type, positive(row.at("row_gmacs")), positive(row.at("rows_gmacs"))});
    }
  }
  rates.fork_ns = positive(in.at("fork_ns"));
  rates.norm_ns = positive(in.at("norm_ns"));
  rates.combine_ns = positive(in.at("combine_ns"));
  rates.route_ns = positive(in.at("route_ns"));
  rates.sample_ns = positive(in.at("sample_ns"));
  return rates;
}

Probe from_json(const Json& in) {
  Probe probe;
  probe.cpu = in.at("cpu").get<std::string>();
  probe.cores = in.at("cores").get<uint32_t>();
  probe.date = in.at("date").get<std::string>();
  probe.load = positive(in.at("load"));
  const Json& drive = in.at("drive");
  probe.drive_folder = drive.at("folder").get<std::string>();
  probe.drive_device = drive.at("device").get<uint64_t>();
  probe.drive_direct = drive.at("direct").get<bool>();
  for (const Json& row : drive.at("reads")) {
    probe.drive.push_back({row.at("bytes").get<uint64_t>(), row.at("depth").get<uint32_t>(), positive(row.at("gbps"))});
  }
  for (const Json& row : in.at("memory"))
    probe.memory.push_back({row.at("threads").get<uint32_t>(), positive(row.at("gbps"))});
  for (const Json& row : in.at("arithmetic")) {
    probe.arithmetic.push_back(
        {row.at("kind").get<std::string>(), row.at("isa").get<std::string>(), positive(row.at("gmacs_core"))});
  }
  probe.operations = operations_from(in.at("operations"));
  return probe;
}

}  // namespace

std::string probe_path() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/outrider/probe.json";
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/outrider/probe.json" : "";
}

std::string probe_json(const Probe& probe) {
  Json out;
  out["version"] = kProbeVersion;
  out["cpu"] = probe.cpu;
  out["cores"] = probe.cores;
  out["date"] = probe.date;
  out["load"] = probe.load;
  out["drive"] = {{"folder", probe.drive_folder},
                  {"device", probe.drive_device},
                  {"direct", probe.drive_direct},
                  {"reads", Json::array()}};
  for (const DriveReading& r : probe.drive)
    out["drive"]["reads"].push_back({{"bytes", r.read_bytes}, {"depth", r.depth}, {"gbps", r.gbps}});
  out["memory"] = Json::array();
  for (const MemoryReading& r : probe.memory) out["memory"].push_back({{"threads", r.threads}, {"gbps", r.gbps}});
  out["arithmetic"] = Json::array();
  for (const ArithmeticReading& r : probe.arithmetic)
    out["arithmetic"].push_back({{"kind", r.kind}, {"isa", r.isa}, {"gmacs_core", r.gmacs}});
  out["operations"] = operations_json(probe.operations);
  return out.dump(1) + "\n";
}

std::optional<Probe> parse_probe(const std::string& text, std::string& note) {
  try {
    const Json in = Json::parse(text);
    const auto version = in.at("version").get<uint32_t>();
    if (version != kProbeVersion) {
      note = "the kept probe is of another version of outrider";
      return std::nullopt;
    }
    return from_json(in);
  } catch (const std::exception& error) {
    note = fmt::format("the kept probe is damaged ({})", printable(error.what()));
    return std::nullopt;
  }
}

std::optional<Probe> load_probe(const std::string& path, std::string& note) {
  std::error_code error;
  if (path.empty() || !std::filesystem::is_regular_file(path, error)) return std::nullopt;
  if (std::filesystem::file_size(path, error) > kMaxFileBytes || error) {
    note = "the kept probe is damaged (too large)";
    return std::nullopt;
  }
  std::ifstream in(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  auto probe = parse_probe(text, note);
  if (!probe) return std::nullopt;
  if (probe->cpu != cpu_name() || probe->cores != core_budget().default_threads) {
    note = fmt::format("the kept probe is of another machine ({}, {} cores)", printable(probe->cpu), probe->cores);
    return std::nullopt;
  }
  return probe;
}

void store_probe(const std::string& path, const Probe& probe) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const std::string fresh = path + fmt::format(".{}", ::getpid());
  {
    std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
    out << probe_json(probe);
    out.close();
    if (!out) fail(ErrorKind::kIo, "{}: cannot be written: {}", fresh, std::strerror(errno));
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(fresh.c_str());
    fail(ErrorKind::kIo, "{}: cannot be replaced: {}", path, std::strerror(error));
  }
}

}  // namespace outrider::whatif
