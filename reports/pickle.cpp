#include "reports/pickle.hpp"

#include <cstddef>
#include <limits>
#include <ostream>

namespace mgplan::reports {
namespace {

constexpr char kProto = '\x80', kStop = '.', kMark = '(', kEmptyDict = '}', kSetItems = 'u', kEmptyList = ']', kAppend = 'a';
constexpr char kOneByte = 'K', kTwoBytes = 'M', kFourBytes = 'J', kLongNumber = '\x8a', kTrue = '\x88', kFalse = '\x89';
constexpr char kShortText = '\x8c', kText = 'X', kPair = '\x86', kMemoize = '\x94', kShortGet = 'h', kGet = 'j';
constexpr int kProtocol = 4;

/// Bytes of a number in two's complement, its sign included.
int bytes_of_number(std::int64_t value) {
    int bytes = 1;
    while (bytes < 8 && (value >> (8 * bytes - 1)) != (value < 0 ? -1 : 0)) ++bytes;
    return bytes;
}

}  // namespace

PickleWriter::PickleWriter(std::ostream& out) : out_(out) {
    put(kProto);
    put(kProtocol, 1);
}

void PickleWriter::put(char code) {
    out_.put(code);
}

void PickleWriter::put(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out_.put(static_cast<char>(value >> (8 * i) & 0xFF));
}

void PickleWriter::open_dict() {
    put(kEmptyDict);
    put(kMark);
}

void PickleWriter::close_dict() {
    put(kSetItems);
}

void PickleWriter::open_list() {
    put(kEmptyList);
}

void PickleWriter::append() {
    put(kAppend);
}

void PickleWriter::number(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    if (value >= 0 && value <= std::numeric_limits<std::uint8_t>::max()) {
        put(kOneByte);
        put(bits, 1);
    } else if (value >= 0 && value <= std::numeric_limits<std::uint16_t>::max()) {
        put(kTwoBytes);
        put(bits, 2);
    } else if (value == static_cast<std::int32_t>(value)) {
        put(kFourBytes);
        put(bits, 4);
    } else {
        const int bytes = bytes_of_number(value);
        put(kLongNumber);
        put(static_cast<std::uint64_t>(bytes), 1);
        put(bits, bytes);
    }
}

void PickleWriter::truth(bool value) {
    put(value ? kTrue : kFalse);
}

void PickleWriter::text(std::string_view value) {
    if (const auto known = texts_.find(value); known != texts_.end()) {
        recall(known->second);
        return;
    }
    const bool is_short = value.size() <= std::numeric_limits<std::uint8_t>::max();
    put(is_short ? kShortText : kText);
    put(value.size(), is_short ? 1 : 4);
    out_ << value;
    texts_.emplace(value, remember());
}

void PickleWriter::pair() {
    put(kPair);
}

std::uint32_t PickleWriter::remember() {
    put(kMemoize);
    return remembered_++;
}

void PickleWriter::recall(std::uint32_t number) {
    const bool is_short = number <= std::numeric_limits<std::uint8_t>::max();
    put(is_short ? kShortGet : kGet);
    put(number, is_short ? 1 : 4);
}

void PickleWriter::finish() {
    put(kStop);
}

}  // namespace mgplan::reports
