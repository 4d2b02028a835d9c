#pragma once
// What the kernels of scans and delta rules read and write, by their bodies: whole arrays, each once for a kernel that reads it and once
// for one that writes it. Parameters of heads and their sums are left out.

#include "runtime/cuda/ops/rule_bodies.hpp"
#include "runtime/cuda/ops/scan_bodies.hpp"

namespace mgplan::runtime::cuda {

/// Of a body that is not counted.
template <class Body>
double moved_bytes(const Body& /*body*/, std::int64_t /*count*/) {
    return 0;
}

/// So many elements of the storage type and of the statistics'.
template <class Element>
double bytes_of_elements(double narrow, double wide) {
    return narrow * static_cast<double>(sizeof(Element)) + wide * static_cast<double>(sizeof(Compute<Element>));
}

template <class Body>
double moved_bytes(const OneByOne<Body>& body, std::int64_t count) {
    return moved_bytes(body.body, count);
}

template <class Element>
double steps_of(const ScanBlock<Element>& block) {
    return static_cast<double>(block.rows() * block.scan.sizes.heads);
}

template <class Element>
double moved_bytes(const ScanSteps<Element>& body, std::int64_t /*count*/) {
    const model::StateSpaceSizes& s = body.scan.sizes;
    const auto steps = static_cast<double>(s.rows() * s.heads);
    return bytes_of_elements<Element>(s.fixed.used() ? 0 : steps, 3 * steps);
}
template <class Element>
double moved_bytes(const ScanMaps<Element>& /*body*/, std::int64_t count) {
    return bytes_of_elements<Element>(4 * static_cast<double>(count), 0);
}
template <class Element>
double moved_bytes(const ScanValues<Element>& body, std::int64_t count) {
    const ScanBlock<Element>& block = body.block;
    const bool dy = block.reached != nullptr;
    const int arrays = 1 + (dy ? 1 : 0) + (block.values != nullptr ? 1 : 0) + (block.left != nullptr ? 1 : 0) +
                       (block.slopes != nullptr ? 1 : 0) + (dy ? 1 : 0);
    return bytes_of_elements<Element>(arrays * static_cast<double>(count), 2 * steps_of(block));
}
template <class Element>
double moved_bytes(const ScanStates<Element>& body, std::int64_t count) {
    const model::StateSpaceSizes& s = body.scan.sizes;
    return bytes_of_elements<Element>(0, static_cast<double>(2 * count * s.chunks() + s.chunks() * s.batch * s.heads));
}
template <class Element>
double moved_bytes(const RoundStates<Element>& /*body*/, std::int64_t count) {
    return bytes_of_elements<Element>(static_cast<double>(count), static_cast<double>(count));
}
template <class Element>
double moved_bytes(const ScanWeights<Element>& body, std::int64_t count) {
    const ScanBlock<Element>& block = body.block;
    const double pairs = static_cast<double>(count), weights = pairs * static_cast<double>(block.scan.per_group());
    const bool backward = block.along != nullptr;
    return bytes_of_elements<Element>(weights + (backward ? pairs : 0), pairs + steps_of(block) + (backward ? weights : 0));
}
template <class Element>
double moved_bytes(const ScanOutput<Element>& body, std::int64_t count) {
    return bytes_of_elements<Element>(2 * static_cast<double>(count), 2 * static_cast<double>(count) + steps_of(body.block));
}
template <class Element>
double moved_bytes(const ScanMapGradients<Element>& /*body*/, std::int64_t count) {
    return bytes_of_elements<Element>(2 * static_cast<double>(count), 2 * static_cast<double>(count));
}
/// x, dy, values, left and dx; what is read and read later, within and of states; decay, step and three sums.
template <class Element>
double moved_bytes(const ScanValueGradients<Element>& body, std::int64_t count) {
    const double values = static_cast<double>(count * body.block.scan.sizes.head_dim);
    return bytes_of_elements<Element>(5 * values, 4 * values + 5 * steps_of(body.block));
}
/// Raw steps and their gradients; steps, three sums, of which one is written over; states behind all chunks but the last, their gradients.
template <class Element>
double moved_bytes(const ScanStepGradients<Element>& body, std::int64_t /*count*/) {
    const model::StateSpaceSizes& s = body.scan.sizes;
    const auto steps = static_cast<double>(s.rows() * s.heads);
    const auto states = static_cast<double>((s.chunks() - 1) * s.batch * s.inner() * s.state);
    return bytes_of_elements<Element>(2 * steps, 5 * steps + 2 * states);
}

/// Elements of a block's arrays; `key_`: of key heads.
struct RuleElements {
    double places, maps, lines, pairs, states, decays, ends, key_places, key_maps;
    bool channels;

    template <class Element>
    explicit RuleElements(const RuleBlock<Element>& block) {
        const model::DeltaRuleSizes& s = block.rule.sizes;
        const auto of = [&](std::int64_t each) { return static_cast<double>(block.teams() * each); };
        channels = s.channel_decays;
        places = of(block.length);
        maps = of(block.length * s.key_dim);
        lines = of(block.length * s.value_dim);
        pairs = of(block.length * block.length);
        states = of(s.key_dim * s.value_dim);
        decays = of(block.length * s.decays_of_head());
        ends = of(s.decays_of_head());
        key_places = static_cast<double>(block.rows() * s.key_heads);
        key_maps = key_places * static_cast<double>(s.key_dim);
    }
};

template <class Element>
double moved_bytes(const RuleDecays<Element>& body, std::int64_t /*count*/) {
    const RuleElements e(body.block);
    return bytes_of_elements<Element>(e.places + e.decays, e.places + 2 * e.decays);
}
template <class Element>
double moved_bytes(const RuleVectors<Element>& body, std::int64_t /*count*/) {
    const RuleElements e(body.block);
    return bytes_of_elements<Element>(2 * e.key_maps + 5 * e.maps, 2 * e.key_places + e.places + e.decays);
}
template <class Element>
double moved_bytes(const RuleValues<Element>& body, std::int64_t /*count*/) {
    const RuleElements e(body.block);
    return bytes_of_elements<Element>((body.block.gradients != nullptr ? 4 : 2) * e.lines, e.places);
}
template <class Element>
double moved_bytes(const RuleChannelScores<Element>& body, std::int64_t /*count*/) {
    const RuleElements e(body.block);
    return bytes_of_elements<Element>(2 * e.maps, e.decays + 2 * e.pairs);
}
template <class Element>
double moved_bytes(const RuleInverse<Element>& body, std::int64_t /*count*/) {
    const RuleElements e(body.block);
    const int narrow = body.block.remainders != nullptr ? 3 : 2;
    return bytes_of_elements<Element>(narrow * e.pairs, 2 * e.pairs + e.places + (e.channels ? 0 : e.decays));
}
/// Of one chunk, which is not the whole block.
template <class Element>
double moved_bytes(const RuleCarry<Element>& body, std::int64_t count) {
    const model::DeltaRuleSizes& s = body.block.rule.sizes;
    const auto ends = static_cast<double>(s.batch * s.decays());
    return bytes_of_elements<Element>(static_cast<double>(count), 2 * static_cast<double>(count) + ends);
}
template <class Element>
double moved_bytes(const RuleOutput<Element>& body, std::int64_t /*count*/) {
    const RuleElements e(body.block);
    return bytes_of_elements<Element>(e.lines, e.lines);
}
/// What lies along new values, of scores the first of each team; strengths, their sums, decays.
template <class Element>
double moved_bytes(const RulePairs<Element>& body, std::int64_t /*count*/) {
    const RuleElements e(body.block);
    return bytes_of_elements<Element>(2 * e.pairs, 3 * e.pairs + 2 * e.places + (e.channels ? 0 : e.decays));
}
template <class Element>
double moved_bytes(const RuleChannelPairs<Element>& body, std::int64_t /*count*/) {
    const RuleElements e(body.block);
    return bytes_of_elements<Element>(2 * e.pairs + 2 * e.maps, e.decays + 3 * e.maps);
}
/// Values, their gradients and those by strengths, keys and queries, gradients of raw strengths; six maps of slopes; strengths and their
/// sums; decays and two sums of them.
template <class Element>
double moved_bytes(const RuleValueGradients<Element>& body, std::int64_t /*count*/) {
    const RuleElements e(body.block);
    return bytes_of_elements<Element>(3 * e.lines + 2 * e.maps + e.places, 6 * e.maps + 2 * e.places + 3 * e.decays);
}
/// Keys and queries and their gradients, which are written as units and read; lengths; the same slopes.
template <class Element>
double moved_bytes(const RuleVectorGradients<Element>& body, std::int64_t /*count*/) {
    const RuleElements e(body.block);
    return bytes_of_elements<Element>(4 * e.key_maps, 6 * e.maps + 4 * e.key_maps + e.places + e.decays + 2 * e.key_places);
}
template <class Element>
double moved_bytes(const RuleDecayGradients<Element>& body, std::int64_t /*count*/) {
    const RuleElements e(body.block);
    return bytes_of_elements<Element>(2 * e.states + 2 * e.decays, e.ends + 2 * e.decays);
}

}  // namespace mgplan::runtime::cuda
