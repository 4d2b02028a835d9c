#include "simulator/cluster_parameters.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "simulator/compute/kernels.hpp"
#include "simulator/network/group_path.hpp"
#include "simulator/software_rates.hpp"

namespace mgplan::simulator {
namespace {

/// Maps a parameter name of the cluster file to its member of Calibration.
struct Field {
    std::string_view name;
    double Calibration::*real = nullptr;
    int Calibration::*whole = nullptr;
    std::int64_t Calibration::*bytes = nullptr;
};

constexpr std::array kFields{
    Field{"gemm_efficiency", &Calibration::gemm_efficiency},
    Field{"fp8_gemm_efficiency", &Calibration::fp8_gemm_efficiency},
    Field{"gemm_k_half", &Calibration::gemm_k_half},
    Field{"multiprocessors", nullptr, &Calibration::multiprocessors},
    Field{"tile_m", nullptr, &Calibration::tile_m},
    Field{"tile_n", nullptr, &Calibration::tile_n},
    Field{"grouped_rows_half", &Calibration::grouped_rows_half},
    Field{"grouped_weight_gradient", &Calibration::grouped_weight_gradient},
    Field{"attention_forward", &Calibration::attention_forward},
    Field{"attention_backward", &Calibration::attention_backward},
    Field{"attention_tail", &Calibration::attention_tail},
    Field{"memory_efficiency", &Calibration::memory_efficiency},
    Field{"kernel_seconds", &Calibration::kernel_seconds},
    Field{"checkpoint_host_seconds", &Calibration::checkpoint_host_seconds},
    Field{"host_kernel_seconds", &Calibration::host_kernel_seconds},
    Field{"issue_seconds", &Calibration::issue_seconds},
    Field{"nvlink_efficiency", &Calibration::nvlink_efficiency},
    Field{"small_group_loss", &Calibration::small_group_loss},
    Field{"bandwidth_growth", &Calibration::bandwidth_growth},
    Field{"nvls_efficiency", &Calibration::nvls_efficiency},
    Field{"nvls_seconds", &Calibration::nvls_seconds},
    Field{"all_to_all_efficiency", &Calibration::all_to_all_efficiency},
    Field{"pcie_efficiency", &Calibration::pcie_efficiency},
    Field{"network_efficiency", &Calibration::network_efficiency},
    Field{"collective_seconds", &Calibration::collective_seconds},
    Field{"low_latency_seconds", &Calibration::low_latency_seconds},
    Field{"low_latency_bandwidth", &Calibration::low_latency_bandwidth},
    Field{"overlap_cost", &Calibration::overlap_cost},
    Field{"expert_overlap_cost", &Calibration::expert_overlap_cost},
    Field{"driver_bytes", nullptr, nullptr, &Calibration::driver_bytes},
    Field{"module_bytes", nullptr, nullptr, &Calibration::module_bytes},
    Field{"graph_node_bytes", nullptr, nullptr, &Calibration::graph_node_bytes},
    Field{"gemm_workspace_bytes", nullptr, nullptr, &Calibration::gemm_workspace_bytes},
    Field{"engine_workspace_bytes", nullptr, nullptr, &Calibration::engine_workspace_bytes},
    Field{"optimizer_fixed_seconds", &Calibration::optimizer_fixed_seconds},
    Field{"iteration_fixed_seconds", &Calibration::iteration_fixed_seconds},
};

const Field& field_of(std::string_view name) {
    const auto found = std::find_if(kFields.begin(), kFields.end(), [&](const Field& field) { return field.name == name; });
    MGPLAN_ASSERT(found != kFields.end(), fmt::format("the time model has the parameter {}", name));
    return *found;
}

void set(Calibration& calibration, std::string_view name, double value) {
    const Field& field = field_of(name);
    if (field.real != nullptr) calibration.*field.real = value;
    if (field.whole != nullptr) calibration.*field.whole = static_cast<int>(value);
    if (field.bytes != nullptr) calibration.*field.bytes = static_cast<std::int64_t>(value);
}

double median(std::vector<double> values) {
    MGPLAN_ASSERT(!values.empty(), "a median is of something");
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

using Points = std::vector<std::pair<double, double>>;                     ///< bytes, seconds
using CollectiveKey = std::tuple<std::string, std::string, std::int64_t>;  ///< operation, group, ranks
using CollectiveCurves = std::map<CollectiveKey, Points>;

/// True if NVLink's bandwidth grows with the bytes of this collective (network/group_path.hpp).
bool grows(const CollectiveKey& key) {
    return std::get<0>(key) != "send_receive";
}

/// Replaces bytes by those that would take the same time at NVLink's full bandwidth.
Points at_full_bandwidth(const Points& points, double growth) {
    GroupPath path;
    path.growth = growth;
    Points straight;
    for (const auto& [bytes, seconds] : points) straight.emplace_back(bytes / path.reached(bytes), seconds);
    return straight;
}

/// seconds = start + per_byte · bytes
struct Line {
    double start = 0;
    double per_byte = 0;
};

/// Least squares of relative errors (weights 1 / seconds²), so that small and large sizes count alike; nothing if the points do not
/// determine a slope.
std::optional<Line> line_through(const Points& points) {
    if (points.size() < 3) return std::nullopt;
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (const auto& [bytes, seconds] : points) {
        const double weight = 1 / (seconds * seconds);
        w += weight;
        x += weight * bytes;
        y += weight * seconds;
        xx += weight * bytes * bytes;
        xy += weight * bytes * seconds;
    }
    const double determinant = w * xx - x * x;
    if (!(determinant > 1e-9 * w * xx)) return std::nullopt;  // all of one size
    Line line{(y * xx - x * xy) / determinant, (w * xy - x * y) / determinant};
    // A negative start is noise of the large sizes: the line then goes through the origin.
    if (line.start < 0) line = {0, xy / xx};
    if (!(line.per_byte > 0) || !std::isfinite(line.per_byte)) return std::nullopt;
    return line;
}

Precision precision_of(Dtype dtype) {
    switch (dtype) {
        case Dtype::fp64:
            return Precision::fp64;
        case Dtype::fp32:
            return Precision::fp32;
        case Dtype::fp16:
            return Precision::fp16;
        case Dtype::fp8:
        case Dtype::e5m2:
            return Precision::fp8;
        case Dtype::bf16:
        case Dtype::int32:
            return Precision::bf16;
    }
    return Precision::bf16;
}

/// Collects fitted values and writes each into the model at once, so that later fits use it.
class Fit {
public:
    explicit Fit(const ClusterSpec& cluster) : cluster_(cluster), calibration(default_calibration(cluster)) {}

    void found(std::string_view name, double value, std::string source) {
        const auto limits = calibration_parameters();
        const auto limit = std::find_if(limits.begin(), limits.end(), [&](const auto& each) { return each.name == name; });
        MGPLAN_ASSERT(limit != limits.end(), fmt::format("{} may be calibrated", name));
        value = std::clamp(value, limit->low, limit->high);
        set(calibration, name, value);
        values[std::string(name)] = {value, std::move(source)};
    }

    void kernels();
    void products();
    void grouped_products();
    void launch();
    void graphs();
    void attention();
    void collectives();
    void bandwidth_growth(const CollectiveCurves& curves);
    void cpu();

    std::map<std::string, CalibratedValue> values;

private:
    const ClusterSpec& cluster_;
    Calibration calibration;
};

void Fit::kernels() {
    Points points;
    for (const auto& each : cluster_.calibration->kernels) points.emplace_back(static_cast<double>(each.bytes), each.time.seconds);
    const auto line = line_through(points);
    if (!line) return;
    found("kernel_seconds", std::max(line->start, 1e-9), fmt::format("start of the line through {} memory-bound kernels", points.size()));
    found("memory_efficiency", 1 / (line->per_byte * cluster_.memory_bandwidth),
          fmt::format("slope of the line through {} memory-bound kernels: {:.4g} GB/s", points.size(), 1e-9 / line->per_byte));
}

void Fit::products() {
    std::vector<const ProductTime*> points;
    for (const auto& each : cluster_.calibration->products) {
        if (each.dtype != Dtype::fp8 && cluster_.peak(precision_of(each.dtype)) > 0) points.push_back(&each);
    }
    if (points.size() < 3) return;
    const auto error = [&](double efficiency, double half) {
        Calibration tried = calibration;
        tried.gemm_efficiency = efficiency;
        tried.gemm_k_half = half;
        double sum = 0;
        for (const auto* point : points) {
            const KernelTimes times(cluster_, tried, precision_of(point->dtype));
            sum += std::abs(std::log(times.gemm(point->m, point->n, point->k) / point->time.seconds));
        }
        return sum / static_cast<double>(points.size());
    };
    // A grid over the depth, refined around its best point, and for each depth a refined grid over the efficiency: the error is piecewise
    // smooth in both.
    double best = std::numeric_limits<double>::infinity(), best_efficiency = 0, best_half = 0;
    const auto try_half = [&](double half) {
        double centre = 0.3, width = std::log(1e3), least = std::numeric_limits<double>::infinity();
        for (int round = 0; round < 4; ++round) {
            double found_at = centre;
            for (int j = -16; j <= 16; ++j) {
                const double efficiency = std::clamp(centre * std::exp(width * j / 16.0), 1e-6, 2.0);
                const double e = error(efficiency, half);
                if (e < least) {
                    least = e;
                    found_at = efficiency;
                }
            }
            centre = found_at;
            width /= 12;
        }
        if (least >= best) return;
        best = least;
        best_efficiency = centre;
        best_half = half;
    };
    try_half(0);
    for (int i = 0; i <= 30; ++i) try_half(std::pow(2.0, 0.4 * i));  // 1 … 4096
    const double coarse = best_half;
    for (int i = -12; i <= 12; ++i) {
        if (coarse > 0) try_half(coarse * std::pow(2.0, 0.4 * i / 12.0));
    }
    const std::string source = fmt::format("fitted to {} products; mean error {:.1f} %", points.size(), 100 * (std::exp(best) - 1));
    found("gemm_efficiency", best_efficiency, source);
    found("gemm_k_half", best_half, source);
}

void Fit::grouped_products() {
    std::vector<const GroupedProductTime*> plain, added;
    for (const auto& each : cluster_.calibration->grouped_products) {
        if (each.dtype == Dtype::fp8 || cluster_.peak(precision_of(each.dtype)) <= 0) continue;
        (each.accumulate ? added : plain).push_back(&each);
    }
    const auto error = [&](const std::vector<const GroupedProductTime*>& points, const Calibration& tried) {
        double sum = 0;
        for (const auto* point : points) {
            const KernelTimes times(cluster_, tried, precision_of(point->dtype), point->dtype == Dtype::fp64 ? 8 : 4);
            const double said = point->accumulate ? times.grouped_weight_gradient(point->m, point->n, point->k, point->groups)
                                                  : times.grouped_gemm(point->m, point->n, point->k, point->groups);
            sum += std::abs(std::log(said / point->time.seconds));
        }
        return sum / static_cast<double>(points.size());
    };
    // Searches a geometric grid for the least error, then a finer one around the best value.
    const auto fit = [&](const char* name, double Calibration::*field, const std::vector<const GroupedProductTime*>& points, double low,
                         double high, bool or_nothing) {
        if (points.size() < 3) return;
        Calibration tried = calibration;
        double least = std::numeric_limits<double>::infinity(), best = 0;
        const auto attempt = [&](double value) {
            tried.*field = value;
            const double e = error(points, tried);
            if (e >= least) return;
            least = e;
            best = value;
        };
        if (or_nothing) attempt(0);
        constexpr int kSteps = 60;
        const double step = std::log(high / low) / kSteps;
        for (int i = 0; i <= kSteps; ++i) attempt(low * std::exp(step * i));
        const double centre = best;
        for (int i = -kSteps; centre > 0 && i <= kSteps; ++i) attempt(std::clamp(centre * std::exp(step * i / kSteps), low, high));
        found(name, best, fmt::format("fitted to {} grouped products; mean error {:.1f} %", points.size(), 100 * (std::exp(least) - 1)));
    };
    fit("grouped_rows_half", &Calibration::grouped_rows_half, plain, 1, 65536, true);
    fit("grouped_weight_gradient", &Calibration::grouped_weight_gradient, added, 1e-3, 4, false);
}

void Fit::launch() {
    const Timing& launch = cluster_.calibration->launch;
    if (launch.repetitions > 0)
        found("issue_seconds", launch.seconds, fmt::format("host time of an op on one element; median of {}", launch.repetitions));
}

void Fit::graphs() {
    std::vector<double> bytes;
    for (const auto& each : cluster_.calibration->graphs) bytes.push_back(each.bytes_of_a_kernel());
    if (bytes.empty()) return;
    found("graph_node_bytes", std::round(median(bytes)),
          fmt::format("free device memory before and after instantiating graphs of {} sizes; median", bytes.size()));
}

void Fit::attention() {
    for (const bool backward : {false, true}) {
        std::vector<double> efficiencies;
        for (const auto& each : cluster_.calibration->attention) {
            if (each.backward != backward || cluster_.peak(precision_of(each.dtype)) <= 0) continue;
            // The time without its start is inversely proportional to the efficiency: one evaluation at 1 determines it.
            Calibration unit = calibration;
            unit.attention_forward = unit.attention_backward = 1;
            const KernelTimes times(cluster_, unit, precision_of(each.dtype));
            const double at_one = backward ? times.attention_backward(each.flops, each.sequence, each.qk_dim)
                                           : times.attention_forward(each.flops, each.sequence, each.qk_dim);
            const double left = std::max(each.time.seconds - unit.kernel_seconds, 0.1 * each.time.seconds);
            efficiencies.push_back((at_one - unit.kernel_seconds) / left);
        }
        if (efficiencies.empty()) continue;
        found(backward ? "attention_backward" : "attention_forward", median(efficiencies),
              fmt::format("median of {} shapes", efficiencies.size()));
    }
}

void Fit::bandwidth_growth(const CollectiveCurves& curves) {
    constexpr std::size_t kFewest = 4;  // a line and its curvature, with one point to spare
    double best = 0, least = std::numeric_limits<double>::infinity();
    std::size_t used = 0;
    for (int hundredths = 0; hundredths <= 30; ++hundredths) {
        const double growth = 0.01 * hundredths;
        double sum = 0;
        used = 0;
        for (const auto& [key, points] : curves) {
            if (!grows(key) || points.size() < kFewest) continue;
            const Points straight = at_full_bandwidth(points, growth);
            const auto line = line_through(straight);
            if (!line) continue;
            for (const auto& [bytes, seconds] : straight) sum += std::abs((line->start + line->per_byte * bytes) / seconds - 1);
            ++used;
        }
        if (sum < least) best = growth, least = sum;
    }
    if (used > 0) found("bandwidth_growth", best, fmt::format("power with which {} collectives' points come nearest to lines", used));
}

void Fit::collectives() {
    const bool by_nvlink = cluster_.nvlink_domain > 1;
    const double link = by_nvlink ? cluster_.nvlink.bandwidth : cluster_.pcie.bandwidth;
    const double latency = by_nvlink ? cluster_.nvlink.latency : cluster_.pcie.latency;
    // Smaller arrays may use NCCL's LL or LL128, which follow other lines (collectives/protocol.hpp).
    const std::int64_t least = calibration.low_latency_bandwidth > 0 ? std::int64_t{16} << 20 : 0;
    CollectiveCurves curves;
    for (const auto& each : cluster_.calibration->collectives) {
        // Groups larger than one domain also measure the network.
        if (each.nodes == 1 && each.ranks <= cluster_.fast_domain() && each.bytes >= least)
            curves[{each.op, each.group, each.ranks}].emplace_back(static_cast<double>(each.bytes), each.time.seconds);
    }
    if (by_nvlink) bandwidth_growth(curves);
    std::vector<double> ring, in_switch, exchange, starts, switch_starts;
    for (const auto& [key, points] : curves) {
        const auto& [op, group, ranks] = key;
        const auto line = line_through(by_nvlink && grows(key) ? at_full_bandwidth(points, calibration.bandwidth_growth) : points);
        if (!line) continue;
        const double n = static_cast<double>(ranks);
        const std::array<GridAxis, 1> axes{GridAxis{Axis::tp, ranks, 1}};
        // The model's link bandwidth for a group of this size at full efficiency.
        Calibration unit = calibration;
        unit.nvlink_efficiency = unit.pcie_efficiency = 1;
        const double full = group_path(axes, cluster_, unit).inside;
        if (op == "all_reduce" && by_nvlink && cluster_.nvls && ranks > 4) {
            // The array enters and leaves the switch once, whatever the number of ranks (collectives/all_reduce.cpp).
            in_switch.push_back(1 / line->per_byte / link);
            switch_starts.push_back(std::max(line->start - 2 * latency, 1e-9));
            continue;
        }
        const double factor = op == "send_receive" ? 1 : op == "all_reduce" ? 2 * (n - 1) / n : (n - 1) / n;
        const double efficiency = factor / line->per_byte / full;
        if (op == "all_to_all") {
            exchange.push_back(efficiency);
        } else {
            ring.push_back(efficiency);
        }
        const double steps = op == "all_reduce" ? 2 * (n - 1) : op == "all_to_all" || op == "send_receive" ? 1 : n - 1;
        starts.push_back((op == "send_receive" ? 2 : 1) * std::max(line->start - steps * latency, 1e-9));
    }
    const auto start = [&](const char* name, const std::vector<double>& of) {
        if (!of.empty()) found(name, median(of), fmt::format("median start of {} collectives' lines", of.size()));
    };
    start("collective_seconds", starts);
    start("nvls_seconds", switch_starts);
    const auto source = [&](const std::vector<double>& slopes) {
        return fmt::format("median slope of {} collectives' lines over {:.4g} GB/s", slopes.size(), link / 1e9);
    };
    if (!ring.empty()) found(by_nvlink ? "nvlink_efficiency" : "pcie_efficiency", median(ring), source(ring));
    if (!in_switch.empty()) found("nvls_efficiency", median(in_switch), source(in_switch));
    // The model defines this efficiency relative to nvlink_efficiency, even if the link is PCIe.
    if (!exchange.empty()) {
        const double relative = by_nvlink ? 1 : calibration.nvlink_efficiency / calibration.pcie_efficiency;
        found("all_to_all_efficiency", median(exchange) * relative, source(exchange));
    }
}

void Fit::cpu() {
    const std::string none = "CPU ranks have no such cost, or count it in their kernels";
    for (const char* name : {"checkpoint_host_seconds", "host_kernel_seconds", "issue_seconds", "grouped_rows_half", "attention_tail",
                             "driver_bytes", "module_bytes", "graph_node_bytes", "gemm_workspace_bytes", "engine_workspace_bytes",
                             "optimizer_fixed_seconds", "iteration_fixed_seconds"})
        found(name, 0, none);
    for (const char* name : {"multiprocessors", "tile_m", "tile_n"}) found(name, 1, "CPU products run without waves of tiles");
    for (const char* name : {"nvlink_efficiency", "nvls_efficiency"}) found(name, 1, "CPU ranks have no NVLink");
    found("low_latency_bandwidth", 0, "CPU ranks have one protocol");
    found("overlap_cost", 1, "threads of one processor hide no collective behind a kernel");
    found("expert_overlap_cost", 1, "threads of one processor hide no collective behind a kernel");
}

}  // namespace

std::optional<std::string> assumed_efficiencies(const ClusterSpec& cluster) {
    if (cluster.calibration || !cluster.sources.contains("efficiencies")) return std::nullopt;
    return fmt::format("efficiencies of {} are not calibrated, its intervals doubled (mgplan clusters show {} says whose they are)",
                       cluster.gpu, cluster.name);
}

Calibration calibration_of(const ClusterSpec& cluster, Software software) {
    Calibration calibration = default_calibration(cluster);
    apply_software(calibration, cluster, software);
    if (cluster.calibration) {
        for (const auto& [name, each] : cluster.calibration->parameters) set(calibration, name, each.value);
    }
    if (assumed_efficiencies(cluster)) {
        for (Deviations* side : {&calibration.faster, &calibration.slower}) {
            for (double* deviation : {&side->run, &side->products, &side->fp8, &side->experts, &side->host, &side->communication})
                *deviation *= 2;
        }
    }
    return calibration;
}

namespace {

/// True if the cluster's file sets the parameter.
bool says(const ClusterSpec& cluster, const char* parameter) {
    return cluster.calibration && cluster.calibration->parameters.contains(parameter);
}

}  // namespace

std::optional<std::string> assumed_module_bytes(const ClusterSpec& cluster) {
    const std::int64_t bytes = calibration_of(cluster).module_bytes;
    if (bytes == 0 || says(cluster, "module_bytes")) return std::nullopt;
    return fmt::format("{} MiB of loaded kernels on each GPU", bytes >> 20);
}

std::optional<std::string> assumed_graph_node_bytes(const ClusterSpec& cluster) {
    const std::int64_t bytes = calibration_of(cluster).graph_node_bytes;
    if (bytes == 0 || says(cluster, "graph_node_bytes")) return std::nullopt;
    return fmt::format("{} KiB of device memory for each kernel of a CUDA graph", bytes >> 10);
}

std::map<std::string, CalibratedValue> fitted_parameters(const ClusterSpec& cluster) {
    MGPLAN_ASSERT(cluster.calibration.has_value(), "parameters are fitted to measurements");
    Fit fit(cluster);
    cluster.calibration->device == "cpu" ? fit.cpu() : fit.launch();
    fit.kernels();
    fit.products();
    fit.grouped_products();
    fit.graphs();
    fit.attention();
    fit.collectives();
    return std::move(fit.values);
}

ClusterSpec with_scaled_efficiencies(const ClusterSpec& cluster, double compute, double communication, const std::string& source) {
    ClusterSpec scaled = cluster;
    if (!scaled.calibration) scaled.calibration = ClusterCalibration{};
    const Calibration before = calibration_of(cluster);
    const auto scale = [&](std::string_view name, double factor) {
        if (factor == 1) return;
        const double old = before.*field_of(name).real;
        scaled.calibration->parameters[std::string(name)] = {std::min(old * factor, std::max(1.0, old)), source};
    };
    for (const char* name : {"gemm_efficiency", "fp8_gemm_efficiency", "attention_forward", "attention_backward", "memory_efficiency"})
        scale(name, compute);
    for (const char* name : {"nvlink_efficiency", "nvls_efficiency", "all_to_all_efficiency", "pcie_efficiency", "network_efficiency"})
        scale(name, communication);
    return scaled;
}

}  // namespace mgplan::simulator
