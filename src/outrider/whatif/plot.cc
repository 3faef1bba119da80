// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

namespace outrider::whatif {

namespace {

// Colours that people who do not see red and green apart can tell (Okabe and Ito 2008).
constexpr std::array kColours = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                 "#E69F00", "#56B4E9", "#8c564b", "#555555"};
constexpr std::array kDashes = {"", "8 3", "2 3", "8 3 2 3", "12 4", "5 5", "1 4", "10 3 3 3"};

constexpr double kWidth = 760, kHeight = 440;
constexpr double kLeft = 78, kRight = 150, kTop = 44, kBottom = 56;

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string label(double x, double y, std::string_view text, const char* anchor = "middle", double size = 12,
                  const char* extra = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\" {}>{}</text>\n", x, y, anchor,
                     size, extra, escape(text));
}

// 1, 2 or 5 times a power of ten, so that about `n` of them fill the range.
double tick_step(double range, double n) {
  if (!(range > 0)) return 1;
  const double raw = range / n;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

// Axes of a plot: a linear scale from 0 (or low) to high each way.
struct Axes {
  double x_low = 0, x_high = 1, y_low = 0, y_high = 1;
  double x(double value) const { return kLeft + (value - x_low) / (x_high - x_low) * (kWidth - kLeft - kRight); }
  double y(double value) const {
    return kHeight - kBottom - (value - y_low) / (y_high - y_low) * (kHeight - kTop - kBottom);
  }

  std::string draw(std::string_view title, std::string_view x_name, std::string_view y_name,
                   const std::function<std::string(double)>& x_text,
                   const std::function<std::string(double)>& y_text) const {
    std::string svg = label((kLeft + kWidth - kRight) / 2, 24, title, "middle", 15, "font-weight=\"bold\"");
    const double x_step = tick_step(x_high - x_low, 8), y_step = tick_step(y_high - y_low, 6);
    for (double v = std::ceil(x_low / x_step) * x_step; v <= x_high * 1.0001; v += x_step) {
      svg += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>\n", x(v),
                         y(y_low), y(y_high));
      svg += label(x(v), kHeight - kBottom + 18, x_text(v));
    }
    for (double v = std::ceil(y_low / y_step) * y_step; v <= y_high * 1.0001; v += y_step) {
      svg += fmt::format("<line x1=\"{1:.1f}\" y1=\"{0:.1f}\" x2=\"{2:.1f}\" y2=\"{0:.1f}\" stroke=\"#ddd\"/>\n", y(v),
                         x(x_low), x(x_high));
      svg += label(kLeft - 8, y(v) + 4, y_text(v), "end");
    }
    svg += fmt::format("<path d=\"M{0:.1f} {1:.1f}V{2:.1f}H{3:.1f}\" fill=\"none\" stroke=\"#333\"/>\n", x(x_low),
                       y(y_high), y(y_low), x(x_high));
    svg += label((kLeft + kWidth - kRight) / 2, kHeight - 14, x_name);
    const double middle = (kTop + kHeight - kBottom) / 2;
    svg += label(20, middle, y_name, "middle", 12, fmt::format("transform=\"rotate(-90 20 {:.1f})\"", middle).c_str());
    return svg;
  }
};

std::string plain(double value) { return fmt::format("{:.6g}", value); }
std::string percent(double value) { return fmt::format("{:.4g} %", 100 * value); }

std::string polyline(std::span<const std::pair<double, double>> points, const char* colour, const char* dash,
                     double width) {
  std::string svg = "<polyline fill=\"none\" points=\"";
  for (const auto& [x, y] : points) svg += fmt::format("{:.1f},{:.1f} ", x, y);
  svg += fmt::format("\" stroke=\"{}\" stroke-width=\"{}\" stroke-dasharray=\"{}\"/>\n", colour, width, dash);
  for (const auto& [x, y] : points)
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\" fill=\"{}\"/>\n", x, y, colour);
  return svg;
}

double miss_share(const Replay& replay) {
  return replay.demanded > 0 ? static_cast<double>(replay.misses) / static_cast<double>(replay.demanded) : 0;
}

}  // namespace

Plot plot_miss_curves(std::span<const Replay> replays) {
  std::vector<std::string> policies;
  Axes axes;
  axes.x_high = axes.y_high = 0;
  for (const Replay& replay : replays) {
    if (std::ranges::find(policies, replay.policy) == policies.end()) policies.push_back(replay.policy);
    axes.x_high = std::max<double>(axes.x_high, replay.slots_per_layer);
    axes.y_high = std::max(axes.y_high, miss_share(replay));
  }
  axes.x_high = std::max(axes.x_high * 1.04, 1.0);
  axes.y_high = std::max(axes.y_high * 1.05, 0.01);
  Plot plot = {.width = kWidth,
               .height = kHeight,
               .svg = axes.draw("Misses by cache size", "slots a layer", "demands that missed", plain, percent)};
  for (size_t p = 0; p < policies.size(); ++p) {
    std::vector<std::pair<double, double>> values;
    for (const Replay& replay : replays) {
      if (replay.policy == policies[p]) values.emplace_back(replay.slots_per_layer, miss_share(replay));
    }
    std::ranges::sort(values);
    for (auto& [x, y] : values) x = axes.x(x), y = axes.y(y);
    const bool is_bound = policies[p] == "belady";
    const char* colour = is_bound ? "#000000" : kColours[p % kColours.size()];
    const char* dash = is_bound ? "6 4" : kDashes[p % kDashes.size()];
    plot.svg += polyline(values, colour, dash, is_bound ? 2.2 : 1.8);
    const double y = kTop + 12 + 20 * static_cast<double>(p);
    plot.svg += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"2.2\" "
        "stroke-dasharray=\"{}\"/>\n",
        kWidth - kRight + 14, y - 4, kWidth - kRight + 44, y - 4, colour, dash);
    plot.svg += label(kWidth - kRight + 50, y, is_bound ? "belady (bound)" : policies[p], "start");
  }
  return plot;
}

Plot plot_heat_map(const TraceSummary& summary) {
  size_t n_experts = 1;
  for (const LayerSummary& layer : summary.layers) n_experts = std::max(n_experts, layer.expert_uses.size());
  const auto n_layers = static_cast<double>(summary.layers.size());
  const double cell_w = (kWidth - kLeft - kRight) / static_cast<double>(n_experts);
  const double cell_h = std::clamp(320 / n_layers, 4.0, 24.0);
  const double bottom = kTop + cell_h * n_layers;
  double peak = 0;
  for (const LayerSummary& layer : summary.layers) {
    for (const uint64_t uses : layer.expert_uses)
      peak = std::max(peak, static_cast<double>(uses) / std::max<double>(1, static_cast<double>(layer.uses)));
  }
  // From white to dark blue by the square root, so that the rare ones show too.
  const auto shade = [&](double share) {
    const double t = peak > 0 ? std::sqrt(share / peak) : 0;
    return fmt::format("rgb({:.0f},{:.0f},{:.0f})", 255 - 247 * t, 255 - 207 * t, 255 - 148 * t);
  };
  Plot plot = {.width = kWidth,
               .height = bottom + 56,
               .svg = label((kLeft + kWidth - kRight) / 2, 24, "Uses of each expert, most used first", "middle", 15,
                            "font-weight=\"bold\"")};
  for (size_t i = 0; i < summary.layers.size(); ++i) {
    const LayerSummary& layer = summary.layers[i];
    std::vector<uint64_t> sorted = layer.expert_uses;
    std::ranges::sort(sorted, std::greater<>());
    const double y = kTop + cell_h * static_cast<double>(i);
    for (size_t e = 0; e < sorted.size(); ++e) {
      const double share = static_cast<double>(sorted[e]) / std::max<double>(1, static_cast<double>(layer.uses));
      plot.svg += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/>\n",
                              kLeft + cell_w * static_cast<double>(e), y, cell_w + 0.3, cell_h + 0.3, shade(share));
    }
    const size_t every = static_cast<size_t>(std::ceil(14 / cell_h));
    if (i % every == 0) plot.svg += label(kLeft - 8, y + cell_h / 2 + 4, fmt::format("{}", i), "end");
  }
  plot.svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{:.1f}\" fill=\"none\" stroke=\"#333\"/>\n",
                          kLeft, kTop, kWidth - kLeft - kRight, bottom - kTop);
  const double step = tick_step(static_cast<double>(n_experts), 8);
  for (double e = 0; e <= static_cast<double>(n_experts); e += step)
    plot.svg += label(kLeft + cell_w * e, bottom + 18, plain(e));
  plot.svg += label((kLeft + kWidth - kRight) / 2, bottom + 42, "experts of the layer, by rank");
  plot.svg += label(20, (kTop + bottom) / 2, "MoE layer", "middle", 12,
                    fmt::format("transform=\"rotate(-90 20 {:.1f})\"", (kTop + bottom) / 2).c_str());
  for (int i = 0; i <= 20; ++i) {
    const double t = i / 20.0;
    plot.svg += fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"16\" height=\"6.3\" fill=\"{}\"/>\n",
                            kWidth - kRight + 20, kTop + 120 - 6 * i, shade(peak * t));
  }
  plot.svg += label(kWidth - kRight + 42, kTop + 8, fmt::format("{:.3g} % of", 100 * peak), "start") +
              label(kWidth - kRight + 42, kTop + 22, "the uses", "start") +
              label(kWidth - kRight + 42, kTop + 126, "0", "start");
  return plot;
}

Plot plot_working_set(const TraceSummary& summary) {
  Axes axes;
  axes.x_high = std::max<double>(1, static_cast<double>(summary.working_set.size()) - 1) * 1.02;
  axes.y_high = 1;
  for (const double experts : summary.working_set) axes.y_high = std::max(axes.y_high, experts * 1.05);
  const auto tokens = [](double power) {
    return power == std::floor(power) ? fmt::format("{}", 1ULL << static_cast<uint64_t>(power)) : std::string();
  };
  Plot plot = {.width = kWidth,
               .height = kHeight,
               .svg = axes.draw("Working set", "window in tokens", "distinct experts of a layer, mean", tokens, plain)};
  std::vector<std::pair<double, double>> points;
  for (size_t i = 0; i < summary.working_set.size(); ++i)
    points.emplace_back(axes.x(static_cast<double>(i)), axes.y(summary.working_set[i]));
  plot.svg += polyline(points, kColours[0], "", 2);
  return plot;
}

Plot plot_fit(std::span<const StepPoint> steps, const CostFit& fit) {
  constexpr double kMib = 1048576;
  Axes axes;
  axes.x_high = axes.y_high = 0;
  for (const StepPoint& step : steps) {
    axes.x_high = std::max(axes.x_high, step.bytes / kMib);
    axes.y_high = std::max(axes.y_high, step.ms);
  }
  axes.x_high = std::max(axes.x_high * 1.05, 1e-3);
  axes.y_high = std::max(axes.y_high * 1.05, 1e-3);
  Plot plot = {
      .width = kWidth, .height = kHeight, .svg = axes.draw("Time of a step", "MiB read on demand", "ms", plain, plain)};
  for (const StepPoint& step : steps) {
    plot.svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.4\" fill=\"{}\" fill-opacity=\"0.45\"/>\n",
                            axes.x(step.bytes / kMib), axes.y(step.ms), kColours[0]);
  }
  // The line, cut to the axes.
  const double slope = fit.ms_per_byte * kMib;
  double x0 = 0, x1 = axes.x_high;
  if (slope > 0) {
    x0 = std::max(x0, -fit.floor_ms / slope);
    x1 = std::min(x1, (axes.y_high - fit.floor_ms) / slope);
  }
  plot.svg += fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"2\"/>\n", axes.x(x0),
      axes.y(fit.floor_ms + slope * x0), axes.x(x1), axes.y(fit.floor_ms + slope * x1), kColours[1]);
  plot.svg += label(kWidth - kRight + 10, kTop + 16, fmt::format("floor {:.3g} ms", fit.floor_ms), "start");
  plot.svg += label(kWidth - kRight + 10, kTop + 34, fmt::format("{:.3g} ms a MiB", slope), "start");
  plot.svg += label(kWidth - kRight + 10, kTop + 52, fmt::format("{:.3g} GB/s", fit.bytes_per_s() / 1e9), "start");
  plot.svg += label(kWidth - kRight + 10, kTop + 70, fmt::format("r2 {:.3f}", fit.r2), "start");
  plot.svg += label(kWidth - kRight + 10, kTop + 88, fmt::format("{} steps", fit.n_steps), "start");
  return plot;
}

std::string svg_file(std::span<const Plot> plots) {
  double width = 0, height = 0;
  std::string body;
  for (const Plot& plot : plots) {
    body += fmt::format("<g transform=\"translate(0 {:.1f})\">\n{}</g>\n", height, plot.svg);
    width = std::max(width, plot.width);
    height += plot.height;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\" fill=\"#222\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{2}</svg>\n",
      width, height, body);
}

std::string html_page(const std::string& title, std::span<const Plot> plots) {
  std::string body;
  for (const Plot& plot : plots) body += "<figure>" + svg_file({&plot, 1}) + "</figure>\n";
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<style>body{{font-family:sans-serif;max-width:800px;margin:2em auto;color:#222}}figure{{margin:1em "
      "0}}svg{{max-width:100%;height:auto}}</style>\n"
      "</head><body>\n<h1>{0}</h1>\n{1}</body></html>\n",
      escape(title), body);
}

}  // namespace outrider::whatif
