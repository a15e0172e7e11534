package stock

import (
	"strconv"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/sale"
)

// tokenFields are the fields of a token hash after userId, in the order in which fill reads them.
var tokenFields = [...]string{
	"state", "commodityId", "quantity", "price", "ts", "epoch", "status", "reason", "orderNo", "payBefore", "version",
}

// storedToken is a token hash.
type storedToken struct {
	userID      int64
	state       sale.TokenState
	commodityID string
	quantity    int
	price       decimal.Decimal
	at          time.Time
	epoch       int64
	status      sale.Status
	reason      sale.Reason
	orderNo     string
	payBefore   time.Time
	version     int64
}

// fill reads the values of tokenFields. A value that is absent or unreadable is zero: what Redis holds is a copy,
// and the database settles every doubt.
func (t *storedToken) fill(v []any) {
	if len(v) < len(tokenFields) {
		return
	}
	t.state = sale.TokenState(text(v[0]))
	t.commodityID = text(v[1])
	t.quantity = int(integer(v[2]))
	t.price, _ = sale.ParseMoney(text(v[3]))
	t.at = sale.FromMillis(integer(v[4]))
	t.epoch = integer(v[5])
	t.status = sale.Status(text(v[6]))
	t.reason = sale.Reason(text(v[7]))
	t.orderNo = text(v[8])
	t.payBefore = sale.FromMillis(integer(v[9]))
	t.version = integer(v[10])
}

func (t *storedToken) result(activityID, token string) sale.Result {
	return sale.Result{
		RequestToken: token, ActivityID: activityID, CommodityID: t.commodityID, Quantity: t.quantity,
		Status: t.status, Reason: t.reason, OrderNo: t.orderNo, PayBefore: t.payBefore, Version: t.version,
	}
}

func (t *storedToken) reservation(activityID, token string) sale.Reservation {
	return sale.Reservation{
		Token: token, UserID: t.userID, ActivityID: activityID, CommodityID: t.commodityID,
		Price: t.price, Quantity: t.quantity, Epoch: t.epoch, At: t.at,
	}
}

func integer(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}
