// SPDX-License-Identifier: Apache-2.0
#include "plots.h"

#include <fstream>

#include "outrider/base/error.h"

namespace outrider::apps {

namespace {

void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) fail(ErrorKind::kIo, "{}: cannot be written", printable(path));
}

}  // namespace

void add_plot_flags(CLI::App& command, std::string& svg, std::string& html) {
  command.add_option("--svg", svg, "Also draw it, as an SVG file");
  command.add_option("--html", html, "Also draw it, as a page");
}

void write_plots(const std::string& svg, const std::string& html, const std::string& title,
                 const std::vector<whatif::Plot>& plots) {
  if (!svg.empty()) write_file(svg, whatif::svg_file(plots));
  if (!html.empty()) write_file(html, whatif::html_page(title, plots));
}

}  // namespace outrider::apps
