#include "runtime/rendezvous/message.hpp"

#include <fmt/core.h>

namespace mgplan::runtime {
namespace {

constexpr std::size_t kHead = 7;  // kind, number, length of the key

void put(std::string& wire, std::uint64_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) wire.push_back(static_cast<char>(number >> (8 * i) & 0xff));
}

std::uint32_t take(std::string_view wire, std::size_t at, int bytes) {
    std::uint32_t number = 0;
    for (int i = 0; i < bytes; ++i) number |= std::uint32_t{static_cast<unsigned char>(wire[at + static_cast<std::size_t>(i)])} << (8 * i);
    return number;
}

}  // namespace

std::string to_wire(const RendezvousMessage& message) {
    MGPLAN_ASSERT(message.key.size() <= kMostKeyBytes && message.value.size() <= kMostValueBytes, "a message is within its bounds");
    std::string wire;
    put(wire, kHead + message.key.size() + message.value.size(), 4);
    put(wire, static_cast<std::uint8_t>(message.kind), 1);
    put(wire, static_cast<std::uint32_t>(message.number), 4);
    put(wire, message.key.size(), 2);
    return wire + message.key + message.value;
}

std::optional<RendezvousMessage> MessageReader::next() {
    if (bytes_.size() < 4) return std::nullopt;
    const std::size_t length = take(bytes_, 0, 4);
    if (length < kHead || length > most_)
        throw MessageError(fmt::format("a message of {} bytes; they have {} to {}", length, kHead, most_));
    if (bytes_.size() > 4) {
        const auto kind = static_cast<std::uint8_t>(bytes_[4]);
        if (kind < static_cast<std::uint8_t>(MessageKind::hello) || kind > static_cast<std::uint8_t>(MessageKind::leave))
            throw MessageError(fmt::format("a message of kind {}, which there is not", kind));
    }
    if (bytes_.size() < 4 + length) return std::nullopt;
    const std::size_t key_bytes = take(bytes_, 9, 2);
    if (key_bytes > kMostKeyBytes || kHead + key_bytes > length)
        throw MessageError(fmt::format("a key of {} bytes in a message of {}", key_bytes, length));
    if (length - kHead - key_bytes > kMostValueBytes)
        throw MessageError(fmt::format("a value of {} bytes; they have at most {}", length - kHead - key_bytes, kMostValueBytes));
    RendezvousMessage message;
    message.kind = static_cast<MessageKind>(bytes_[4]);
    message.number = static_cast<std::int32_t>(take(bytes_, 5, 4));
    message.key = bytes_.substr(4 + kHead, key_bytes);
    message.value = bytes_.substr(4 + kHead + key_bytes, length - kHead - key_bytes);
    bytes_.erase(0, 4 + length);
    return message;
}

bool equal_secrets(std::string_view given, std::string_view expected) {
    // After the end of `expected` its bytes are compared again from the first, so that the code path does not depend on its length.
    unsigned difference = given.size() == expected.size() ? 0 : 1;
    for (std::size_t i = 0; i < given.size(); ++i) {
        const char other = expected.empty() ? '\0' : expected[i % expected.size()];
        difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(other);
    }
    // The compiler is not to see that one difference decides.
    volatile unsigned result = difference;
    return result == 0;
}

}  // namespace mgplan::runtime
