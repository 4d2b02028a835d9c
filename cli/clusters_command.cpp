#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/options.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "reports/table.hpp"

namespace mgplan::cli {
namespace {

using reports::Align;
using reports::Table;

std::string number(double value) {
    return fmt::format("{:.10g}", value);
}

double node_network_gbits(const ClusterSpec& cluster) {
    return cluster.network.bandwidth * cluster.gpus_per_node * 8 / 1e9;
}

std::string whole_gib(std::int64_t bytes) {
    return fmt::format("{:.1f}", static_cast<double>(bytes) / 1073741824.0);
}

std::string list_clusters(Format format) {
    const auto names = cluster_preset_names();
    if (format == Format::json) {
        auto clusters = nlohmann::ordered_json::array();
        for (const auto& name : names) clusters.push_back(cluster_to_json(load_cluster(name)));
        return nlohmann::ordered_json{{"clusters", std::move(clusters)}}.dump(2) + "\n";
    }
    Table table({{"cluster", Align::left},
                 {"GPU", Align::left},
                 {"memory\nGiB"},
                 {"bf16\nTFLOP/s"},
                 {"HBM\nGB/s"},
                 {"GPUs\n/node"},
                 {"NVLink\ndomain"},
                 {"NVLink\nGB/s"},
                 {"network\nGb/s/node"}});
    for (const auto& name : names) {
        const ClusterSpec cluster = load_cluster(name);
        table.add_row({name, cluster.gpu, whole_gib(cluster.memory_bytes), number(cluster.peak(Precision::bf16) / 1e12),
                       number(cluster.memory_bandwidth / 1e9), std::to_string(cluster.gpus_per_node),
                       cluster.nvlink_domain > 1 ? std::to_string(cluster.nvlink_domain) : "-",
                       cluster.nvlink_domain > 1 ? number(cluster.nvlink.bandwidth / 1e9) : "-", number(node_network_gbits(cluster))});
    }
    if (format == Format::csv) return table.to_csv();
    return table.to_text() +
           "\nNVLink figures are per GPU and direction; mgplan clusters show NAME prints each figure's source.\n"
           "Change single figures with --cluster NAME,key=value; the keys are bf16_tflops, fp8_tflops,\n"
           "gpus_per_node, host_memory_gib, memory_gbytes_per_second, memory_gib, network_kind (infiniband,\n"
           "roce, efa or slingshot), node_network_gbits_per_second, nvfp4_tflops, nvlink_domain and\n"
           "nvlink_gbytes_per_second.\n";
}

/// One row per figure; with `short_sources` a source equal to the one above is not written out again.
Table figures(const ClusterSpec& cluster, bool short_sources) {
    Table table({{"figure", Align::left}, {"value"}, {"unit", Align::left}, {"source", Align::left}});
    std::string above;
    const auto row = [&](const std::string& figure, std::string value, std::string unit, const std::string& field) {
        const auto found = cluster.sources.find(field);
        const std::string source = found == cluster.sources.end() ? "not stated" : found->second;
        table.add_row({figure, std::move(value), std::move(unit), short_sources && source == above ? "the same" : source});
        above = source;
    };
    row("memory", fmt::format("{:.2f}", static_cast<double>(cluster.memory_bytes) / 1073741824.0), "GiB", "memory_bytes");
    for (const auto& [precision, rate] : cluster.peak_flops)
        row(fmt::format("{} peak", to_string(precision)), number(rate / 1e12), "TFLOP/s", "peak_flops");
    for (const auto& [precision, rate] : cluster.measured_products)
        row(fmt::format("{} product, fastest measured", to_string(precision)), number(rate / 1e12), "TFLOP/s", "measured_products");
    row("memory bandwidth", number(cluster.memory_bandwidth / 1e9), "GB/s", "memory_bandwidth");
    if (cluster.host_memory_bytes > 0)
        row("host memory of a node", fmt::format("{:.0f}", static_cast<double>(cluster.host_memory_bytes) / 1073741824.0), "GiB",
            "host_memory_bytes");
    row("GPUs per node", std::to_string(cluster.gpus_per_node), "", "gpus_per_node");
    row("NVLink domain", std::to_string(cluster.nvlink_domain), "GPUs", "nvlink_domain");
    const auto link = [&](const std::string& name, const std::string& field, const LinkSpec& spec) {
        row(name, number(spec.bandwidth / 1e9), "GB/s", field);
        const std::string latency_field = cluster.sources.contains(field + ".latency") ? field + ".latency" : field;
        row(name + " latency", number(spec.latency * 1e6), "us", latency_field);
    };
    link("NVLink", "nvlink", cluster.nvlink);
    link("PCIe", "pcie", cluster.pcie);
    link("network per GPU", "network", cluster.network);
    if (cluster.direct_links) row("links", "one for each pair of GPUs", "", "direct_links");
    if (cluster.sources.contains("network_kind")) row("network kind", std::string(to_string(cluster.network_kind)), "", "network_kind");
    row("NICs per node", std::to_string(cluster.nics_per_node), "", "nics_per_node");
    row("NVLink SHARP", cluster.nvls ? "yes" : "no", "", "nvls");
    row("compute capability", fmt::format("{}.{}", cluster.compute_capability / 10, cluster.compute_capability % 10), "",
        "compute_capability");
    if (cluster.compute_units > 0) row("compute units", std::to_string(cluster.compute_units), "", "compute_units");
    if (cluster.sources.contains("efficiencies")) row("efficiencies", cluster.calibration ? "measured" : "assumed", "", "efficiencies");
    return table;
}

/// The cluster of that name; its errors name the command in place of the option that others read it from.
ClusterSpec named_cluster(const std::string& name) {
    try {
        return load_cluster(name);
    } catch (const ConfigError& error) {
        constexpr std::string_view kOption = "--cluster";
        std::vector<std::string> problems = error.problems();
        for (auto& problem : problems) {
            if (problem.starts_with(kOption)) problem.replace(0, kOption.size(), "clusters show");
        }
        throw ConfigError(std::move(problems));
    }
}

std::string show(const ClusterSpec& cluster, Format format) {
    if (format == Format::json) return cluster_to_json(cluster).dump(2) + "\n";
    if (format == Format::csv) return figures(cluster, false).to_csv();
    return fmt::format(
        "{} ({})\n\n{}\nBandwidths are per GPU and direction, rates dense. --format json prints what --cluster FILE reads.\n", cluster.name,
        cluster.gpu, figures(cluster, true).to_text());
}

}  // namespace

int run_clusters(const std::vector<std::string>& args, Console& console) {
    std::vector<std::string> words;
    Options options("clusters [show NAME[,key=value…]|FILE] [options]",
                    "Lists the clusters mgplan knows, or shows one with the source of each figure.");
    options.positional("show NAME", words, 2, "a preset, a preset with changed figures, or a cluster's JSON file");
    if (!options.parse(args, console.out)) return kDone;
    if (words.empty()) {
        options.write(console, list_clusters(options.format()));
        return kDone;
    }
    if (words.front() != "show")
        throw ConfigError(
            fmt::format("clusters: unknown word '{}'; write mgplan clusters, or mgplan clusters show NAME", words.front().substr(0, 60)));
    if (words.size() < 2)
        throw ConfigError("clusters show needs a name; use " + any_of_text(cluster_preset_names()) + ", or a JSON file's path");
    options.write(console, show(named_cluster(words[1]), options.format()));
    return kDone;
}

}  // namespace mgplan::cli
