#include "plan/json/cluster_json.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/cluster/cluster_limits.hpp"
#include "plan/cluster/cluster_names.hpp"
#include "plan/text/embedded_files.hpp"
#include "plan/text/enum_reader.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"
#include "plan/text/text_file.hpp"

namespace mgplan {
namespace {

using Json = nlohmann::ordered_json;
namespace limits = cluster_limits;

constexpr std::size_t kMostFileBytes = std::size_t{4} << 20;  ///< a cluster file has a few KiB
constexpr double kGib = 1073741824.0;

constexpr Precision kPrecisions[] = {Precision::bf16, Precision::fp16, Precision::fp32, Precision::fp64, Precision::fp8, Precision::nvfp4};

Json link_to_json(const LinkSpec& link) {
    return Json{{"bandwidth", link.bandwidth}, {"latency", link.latency}};
}

LinkSpec link_from_json(JsonReader& parent, const char* field) {
    const Json* json = parent.member(field);
    if (json == nullptr) {
        parent.problems().add("{}: field '{}' is missing; give {{\"bandwidth\": bytes per second, \"latency\": seconds}}", parent.where(),
                              field);
        return {};
    }
    JsonReader reader(*json, fmt::format("{}: {}", parent.where(), field), parent.problems());
    LinkSpec link;
    link.bandwidth = reader.real("bandwidth", limits::kBandwidth.low, limits::kBandwidth.high);
    link.latency = reader.real("latency", limits::kLatency.low, limits::kLatency.high);
    reader.finish();
    return link;
}

/// The rates of `field` by precision, FLOP/s; nothing where the field is missing.
std::map<Precision, double> rates_from_json(JsonReader& parent, std::string_view field) {
    std::map<Precision, double> rates;
    const Json* json = parent.member(field);
    if (json == nullptr) return rates;
    JsonReader reader(*json, fmt::format("{}: {}", parent.where(), field), parent.problems());
    for (const Precision precision : kPrecisions) {
        const auto name = to_string(precision);
        if (reader.has(name)) rates[precision] = reader.real(name, limits::kPeakFlops.low, limits::kPeakFlops.high);
        reader.ignore(name);
    }
    reader.finish();
    return rates;
}

Json rates_to_json(const std::map<Precision, double>& rates) {
    Json json = Json::object();
    for (const Precision precision : kPrecisions) {
        if (const auto found = rates.find(precision); found != rates.end()) json[std::string(to_string(precision))] = found->second;
    }
    return json;
}

std::map<std::string, std::string> sources_from_json(JsonReader& parent) {
    std::map<std::string, std::string> sources;
    const Json* json = parent.member("sources");
    if (json == nullptr) return sources;
    JsonReader reader(*json, fmt::format("{}: sources", parent.where()), parent.problems());
    if (!json->is_object()) return sources;
    for (const auto& item : json->items()) sources[item.key()] = reader.text(item.key());
    return sources;
}

constexpr const char* kNvlinkKey = "nvlink_gbytes_per_second";
constexpr const char* kNodeNetworkKey = "node_network_gbits_per_second";
constexpr const char* kMemoryRateKey = "memory_gbytes_per_second";

/// Keys of peak rates. fp16 has the rate of bf16 where it had it before.
struct PeakKey {
    const char* key;
    Precision precision;
};
constexpr std::array kPeakKeys{PeakKey{"bf16_tflops", Precision::bf16}, PeakKey{"fp8_tflops", Precision::fp8},
                               PeakKey{"nvfp4_tflops", Precision::nvfp4}};

/// The key that a word of --cluster means. Two keys had names that left open whether they count bits or bytes; plans that are saved hold
/// them.
std::string override_key(const std::string& word) {
    if (word == "nvlink_gbps") return kNvlinkKey;
    if (word == "node_network_gbps") return kNodeNetworkKey;
    if (word == "network") return "network_kind";
    return word;
}

/// A real number of an override within bounds; otherwise one problem and nothing.
std::optional<double> read_real(Problems& problems, const std::string& key, const std::string& text, double low, double high) {
    const auto value = parse_real(text);
    if (!value || !(*value >= low && *value <= high)) {
        problems.add("--cluster: {} = '{}' {}; use a number from {:.10g} to {:.10g}", key, text.substr(0, 60),
                     value ? "is out of range" : "is not a number", low, high);
        return std::nullopt;
    }
    return value;
}

/// Sets a peak rate. A measured product keeps its share of it.
void apply_peak(ClusterSpec& cluster, const PeakKey& peak, const std::string& text, Problems& problems) {
    const auto before = cluster.peak_flops.find(peak.precision);
    if (before == cluster.peak_flops.end()) {
        problems.add("--cluster: {} = '{}' changes a rate that {} does not have; leave it out", peak.key, text.substr(0, 60), cluster.name);
        return;
    }
    const auto tflops = read_real(problems, peak.key, text, limits::kPeakFlops.low / 1e12, limits::kPeakFlops.high / 1e12);
    if (!tflops) return;
    const double old = before->second;
    std::vector<Precision> changed{peak.precision};
    if (const auto half = cluster.peak_flops.find(Precision::fp16); half != cluster.peak_flops.end() && half->second == old)
        changed.push_back(Precision::fp16);
    for (const Precision precision : changed) {
        cluster.peak_flops[precision] = *tflops * 1e12;
        if (const auto product = cluster.measured_products.find(precision); product != cluster.measured_products.end())
            product->second *= *tflops * 1e12 / old;
    }
}

/// The figures a user changes. Each is applied to the preset in a fixed order, so that the order of words is free.
void apply_overrides(ClusterSpec& cluster, const std::map<std::string, std::string>& given, Problems& problems) {
    const auto note = [&](const char* field, const std::string& key) {
        cluster.sources[field] = fmt::format("given with --cluster as {}={}", key, given.at(key));
    };
    if (given.contains("memory_gib")) {
        if (const auto gib = read_real(problems, "memory_gib", given.at("memory_gib"), 0.01, 1048576)) {
            cluster.memory_bytes = std::llround(*gib * kGib);
            note("memory_bytes", "memory_gib");
        }
    }
    if (given.contains("host_memory_gib")) {
        if (const auto gib = read_real(problems, "host_memory_gib", given.at("host_memory_gib"), 0.01, 1048576)) {
            cluster.host_memory_bytes = std::llround(*gib * kGib);
            note("host_memory_bytes", "host_memory_gib");
        }
    }
    for (const PeakKey& peak : kPeakKeys) {
        if (!given.contains(peak.key)) continue;
        apply_peak(cluster, peak, given.at(peak.key), problems);
        note("peak_flops", peak.key);
    }
    if (given.contains(kMemoryRateKey)) {
        if (const auto gbytes = read_real(problems, kMemoryRateKey, given.at(kMemoryRateKey), 0.001, 1e7)) {
            cluster.memory_bandwidth = *gbytes * 1e9;
            note("memory_bandwidth", kMemoryRateKey);
        }
    }
    double node_network = cluster.network.bandwidth * cluster.gpus_per_node;
    if (given.contains("gpus_per_node")) {
        const auto gpus = static_cast<int>(read_integer(problems, "--cluster: gpus_per_node", given.at("gpus_per_node"),
                                                        limits::kGpusPerNode.low, limits::kGpusPerNode.high));
        // A domain that spans nodes stays (a rack); one that is the node grows and shrinks with it; a smaller one (pairs
        // of bridged cards, or no NVLink) stays as far as the node allows.
        if (cluster.nvlink_domain == cluster.gpus_per_node) {
            cluster.nvlink_domain = gpus;
        } else if (cluster.nvlink_domain < cluster.gpus_per_node) {
            cluster.nvlink_domain = std::min(cluster.nvlink_domain, gpus);
        }
        cluster.gpus_per_node = gpus;
        note("gpus_per_node", "gpus_per_node");
    }
    if (given.contains(kNodeNetworkKey)) {
        if (const auto gbits = read_real(problems, kNodeNetworkKey, given.at(kNodeNetworkKey), 0.001, 1e7)) {
            // NICs of the same kind: their number follows the bandwidth.
            const double nic = node_network / cluster.nics_per_node;
            node_network = *gbits * 1e9 / 8;
            cluster.nics_per_node = static_cast<int>(std::clamp<double>(std::round(node_network / nic), 1, limits::kNicsPerNode.high));
            note("network", kNodeNetworkKey);
            note("nics_per_node", kNodeNetworkKey);
        }
    }
    cluster.network.bandwidth = node_network / cluster.gpus_per_node;
    if (given.contains("network_kind")) {
        const std::string& word = given.at("network_kind");
        if (const auto kind = parse_network_kind(word)) {
            cluster.network_kind = *kind;
            note("network_kind", "network_kind");
        } else {
            problems.add("--cluster: network_kind = '{}' is not known; use {}", word.substr(0, 60), any_of_text(network_kind_names()));
        }
    }
    if (given.contains("nvlink_domain")) {
        cluster.nvlink_domain = static_cast<int>(read_integer(problems, "--cluster: nvlink_domain", given.at("nvlink_domain"),
                                                              limits::kNvlinkDomain.low, limits::kNvlinkDomain.high));
        note("nvlink_domain", "nvlink_domain");
    }
    if (given.contains(kNvlinkKey)) {
        if (const auto gbytes = read_real(problems, kNvlinkKey, given.at(kNvlinkKey), 0.001, 1e7)) {
            cluster.nvlink.bandwidth = *gbytes * 1e9;
            note("nvlink", kNvlinkKey);
        }
    }
}

ClusterSpec read_preset(const EmbeddedFile& file) {
    const std::string where = fmt::format("configs/clusters/{}.json", file.name);
    return cluster_from_json(parse_json(file.text, where), where);
}

std::optional<ClusterSpec> preset(std::string_view name) {
    for (const auto& file : embedded_clusters()) {
        if (file.name == name) return read_preset(file);
    }
    return std::nullopt;
}

bool names_a_file(const std::string& text) {
    std::error_code error;
    return text.find('\0') == std::string::npos && std::filesystem::exists(text, error) && !error;
}

ClusterSpec cluster_from_file(const std::string& path) {
    return read_cluster(read_text_file(path, "--cluster", kMostFileBytes), path);
}

ClusterSpec base_cluster(const std::string& name) {
    const std::string wanted = lower_case(name);
    if (auto found = preset(wanted)) return *found;
    if (names_a_file(name)) return cluster_from_file(name);
    const auto of_gpu = clusters_of_gpu(wanted, cluster_presets());
    if (of_gpu.size() == 1) return *preset(of_gpu.front());
    if (of_gpu.size() > 1) throw ConfigError(fmt::format("--cluster: '{}' may be several presets; use {}", name, any_of_text(of_gpu)));
    const auto names = cluster_preset_names();
    const std::string shown = name.substr(0, 100);
    if (name.find('/') != std::string::npos || name.ends_with(".json"))
        throw ConfigError(
            fmt::format("--cluster {}: there is no such file; 'mgplan clusters show NAME --format json --output FILE' writes one", shown));
    const std::string hint = did_you_mean(name, names);
    throw ConfigError(fmt::format("--cluster: unknown preset '{}'; {}{}use {}, or a JSON file's path", shown, hint,
                                  hint.empty() ? "" : " Otherwise ", any_of_text(names)));
}

}  // namespace

Json cluster_to_json(const ClusterSpec& cluster) {
    Json json{{"name", cluster.name},
              {"gpu", cluster.gpu},
              {"memory_bytes", cluster.memory_bytes},
              {"peak_flops", rates_to_json(cluster.peak_flops)},
              {"memory_bandwidth", cluster.memory_bandwidth},
              {"gpus_per_node", cluster.gpus_per_node},
              {"nvlink_domain", cluster.nvlink_domain},
              {"nvlink", link_to_json(cluster.nvlink)},
              {"pcie", link_to_json(cluster.pcie)},
              {"network", link_to_json(cluster.network)},
              {"nics_per_node", cluster.nics_per_node},
              {"nvls", cluster.nvls},
              {"compute_capability", cluster.compute_capability},
              {"sources", Json(cluster.sources)}};
    if (!cluster.measured_products.empty()) json["measured_products"] = rates_to_json(cluster.measured_products);
    if (cluster.network_kind != NetworkKind::infiniband) json["network_kind"] = to_string(cluster.network_kind);
    if (cluster.direct_links) json["direct_links"] = true;
    if (cluster.compute_units > 0) json["compute_units"] = cluster.compute_units;
    if (cluster.host_memory_bytes > 0) json["host_memory_bytes"] = cluster.host_memory_bytes;
    if (cluster.gpu_watts > 0) json["gpu_watts"] = cluster.gpu_watts;
    if (cluster.host.bandwidth > 0) json["host"] = link_to_json(cluster.host);
    if (cluster.calibration) json["calibration"] = calibration_to_json(*cluster.calibration);
    return json;
}

ClusterSpec cluster_from_json(const Json& json, const std::string& where) {
    Problems problems;
    JsonReader reader(json, where, problems);
    ClusterSpec cluster;
    cluster.name = reader.text("name");
    cluster.gpu = reader.text_or("gpu", "");
    cluster.memory_bytes = reader.integer("memory_bytes", limits::kMemoryBytes.low, limits::kMemoryBytes.high);
    if (!reader.has("peak_flops"))
        problems.add("{}: field 'peak_flops' is missing; give the dense rates, such as {{\"bf16\": 989.4e12}}", where);
    cluster.peak_flops = rates_from_json(reader, "peak_flops");
    cluster.measured_products = rates_from_json(reader, "measured_products");
    cluster.memory_bandwidth = reader.real("memory_bandwidth", limits::kBandwidth.low, limits::kBandwidth.high);
    cluster.gpus_per_node = static_cast<int>(reader.integer("gpus_per_node", limits::kGpusPerNode.low, limits::kGpusPerNode.high));
    cluster.nvlink_domain = static_cast<int>(reader.integer("nvlink_domain", limits::kNvlinkDomain.low, limits::kNvlinkDomain.high));
    cluster.nvlink = link_from_json(reader, "nvlink");
    cluster.pcie = link_from_json(reader, "pcie");
    cluster.network = link_from_json(reader, "network");
    if (reader.has("network_kind"))
        cluster.network_kind = read_enum(reader, "network_kind", parse_network_kind, network_kind_names(), cluster.network_kind);
    reader.ignore("network_kind");
    if (reader.has("host")) cluster.host = link_from_json(reader, "host");
    reader.ignore("host");
    cluster.nics_per_node = static_cast<int>(reader.integer("nics_per_node", limits::kNicsPerNode.low, limits::kNicsPerNode.high));
    cluster.host_memory_bytes = reader.integer_or("host_memory_bytes", 0, limits::kHostMemoryBytes.low, limits::kHostMemoryBytes.high);
    cluster.gpu_watts = reader.real_or("gpu_watts", 0, limits::kWatts.low, limits::kWatts.high);
    cluster.nvls = reader.boolean_or("nvls", false);
    cluster.direct_links = reader.boolean_or("direct_links", false);
    cluster.compute_capability =
        static_cast<int>(reader.integer("compute_capability", limits::kComputeCapability.low, limits::kComputeCapability.high));
    cluster.compute_units = static_cast<int>(reader.integer_or("compute_units", 0, limits::kComputeUnits.low, limits::kComputeUnits.high));
    cluster.sources = sources_from_json(reader);
    if (const Json* calibration = reader.member("calibration")) {
        try {
            cluster.calibration = calibration_from_json(*calibration, where + ": calibration");
        } catch (const ConfigError& error) {
            problems.absorb(error);
        }
    } else if (json.is_object() && json.contains("calibration")) {
        problems.add("{}: calibration is null; give what mgplan calibrate measured, or leave it out", where);
    }
    reader.finish();
    problems.throw_if_any();
    validate(cluster, where);
    return cluster;
}

std::vector<std::string> cluster_preset_names() {
    std::vector<std::string> names;
    for (const auto& file : embedded_clusters()) names.emplace_back(file.name);
    return names;
}

std::vector<ClusterSpec> cluster_presets() {
    std::vector<ClusterSpec> presets;
    for (const auto& file : embedded_clusters()) presets.push_back(read_preset(file));
    return presets;
}

ClusterSpec read_cluster(const std::string& text, const std::string& where) {
    ClusterSpec cluster = cluster_from_json(parse_json(text, where), where);
    if (cluster.calibration && !cluster.calibration->complete)
        throw ConfigError(
            fmt::format("--cluster {}: its calibration is not complete; go on with mgplan calibrate --resume --output {}", where, where));
    return cluster;
}

ClusterSpec load_cluster(const std::string& text) {
    if (text.empty()) throw ConfigError("--cluster is empty; use " + any_of_text(cluster_preset_names()) + ", or a JSON file's path");
    // A file whose name holds commas or '=' is still a file.
    if (text.find(',') != std::string::npos && names_a_file(text)) return cluster_from_file(text);

    const auto words = split(text, ',');
    Problems problems;
    std::optional<ClusterSpec> cluster;
    try {
        cluster = base_cluster(words.front());
    } catch (const ConfigError& error) {
        problems.absorb(error);
    }
    const auto keys = cluster_keys();
    std::map<std::string, std::string> given;
    for (std::size_t i = 1; i < words.size(); ++i) {
        const auto equals = words[i].find('=');
        const std::string key = override_key(words[i].substr(0, equals));
        if (!is_cluster_key(key)) {
            const std::string hint = did_you_mean(key, keys);
            problems.add("--cluster: unknown key '{}'; {}the keys are {}", key.substr(0, 60), hint.empty() ? "" : hint + " ",
                         fmt::join(keys, ", "));
        } else if (equals == std::string::npos) {
            problems.add("--cluster: {} needs a value; write {}={}", key, key, key == "network_kind" ? "NAME" : "NUMBER");
        } else if (!given.emplace(key, words[i].substr(equals + 1)).second) {
            problems.add("--cluster: {} is given twice; give it once", key);
        }
    }
    // Without a cluster the values are still read, so that their problems are reported along with the unknown name.
    ClusterSpec stand_in;
    stand_in.network.bandwidth = 1e9;
    for (const PeakKey& peak : kPeakKeys) stand_in.peak_flops[peak.precision] = 1e12;
    ClusterSpec changed = cluster.value_or(stand_in);
    apply_overrides(changed, given, problems);
    problems.throw_if_any();
    if (!given.empty()) changed.name += text.substr(words.front().size());
    validate(changed, "--cluster " + text);
    return changed;
}

std::vector<std::string> cluster_keys() {
    std::vector<std::string> keys{"gpus_per_node", "host_memory_gib", kMemoryRateKey,  "memory_gib",
                                  "network_kind",  kNodeNetworkKey,   "nvlink_domain", kNvlinkKey};
    for (const PeakKey& peak : kPeakKeys) keys.emplace_back(peak.key);
    std::sort(keys.begin(), keys.end());
    return keys;
}

bool is_cluster_key(const std::string& word) {
    const auto keys = cluster_keys();
    return std::find(keys.begin(), keys.end(), override_key(word)) != keys.end();
}

std::vector<std::string> renamed_cluster_keys(const std::string& text) {
    std::vector<std::string> sentences;
    for (const std::string& word : split(text, ',')) {
        const std::string key = word.substr(0, word.find('='));
        if (const std::string now = override_key(key); now != key && key != word)
            sentences.push_back(fmt::format("--cluster: {} is read as {}{}", key, now, word.substr(key.size())));
    }
    return sentences;
}

}  // namespace mgplan
